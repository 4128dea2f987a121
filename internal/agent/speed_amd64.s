#include "textflag.h"

#define FIVE ADDQ BX, AX; ADDQ BX, AX; ADDQ BX, AX; ADDQ BX, AX; ADDQ BX, AX

// func additions(n int64)
TEXT ·additions(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX
	MOVQ $1, BX
	XORQ AX, AX
next:
	FIVE
	FIVE
	FIVE
	FIVE
	SUBQ $20, CX
	JG   next
	RET
