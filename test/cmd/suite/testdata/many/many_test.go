package many

import "testing"

func Test1(t *testing.T) { t.Error() }
func Test2(t *testing.T) { t.Error() }
func Test3(t *testing.T) { t.Error() }
func Test4(t *testing.T) { t.Error() }
func Test5(t *testing.T) { t.Error() }
func Test6(t *testing.T) { t.Error() }
