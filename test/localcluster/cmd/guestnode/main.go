// Command guestnode is the first process of a guest that is a node of the lab's cluster.
package main

import "github.com/tailgate-dev/tailgate/test/localcluster/guestnode"

func main() { guestnode.Main() }
