package timeout

import (
	"testing"
	"time"
)

func TestHangs(*testing.T) { time.Sleep(time.Hour) }
