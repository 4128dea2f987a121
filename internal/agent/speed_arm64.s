#include "textflag.h"

#define FIVE ADD R1, R0; ADD R1, R0; ADD R1, R0; ADD R1, R0; ADD R1, R0

// func additions(n int64)
TEXT ·additions(SB), NOSPLIT, $0-8
	MOVD n+0(FP), R2
	MOVD $1, R1
	MOVD $0, R0
next:
	FIVE
	FIVE
	FIVE
	FIVE
	SUBS $20, R2
	BGT  next
	RET
