# Six loops with equal bodies, executed a known number of times for each of %rdi rounds: 2, 4, 8, 16, 30
# and 40 of 100. Each iteration waits for the division of the one before, which takes nearly all of its
# time.
        .intel_syntax noprefix
        .text
        .globl six_blocks
        .type six_blocks, @function
six_blocks:
        push rbx
        mov r8, rdi
        mov rsi, 0x123456789abcdef
        mov rcx, 1000003
        mov rbx, rsi
.Lround:
        .macro block count
        mov r9, \count * 20
1:      mov rax, rbx
        xor edx, edx
        div rcx
        lea rbx, [rax + rsi]
        nop
        nop
        nop
        nop
        dec r9
        jnz 1b
        .endm
        block 2
        block 4
        block 8
        block 16
        block 30
        block 40
        dec r8
        jnz .Lround
        mov rax, rbx
        pop rbx
        ret
        .size six_blocks, . - six_blocks
        .section .note.GNU-stack, "", @progbits
