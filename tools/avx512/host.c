/* Runs recorded programs, each in a process of its own, and compares their bytes. jobs.h is made by linking.py. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

extern const unsigned char bytes[];

struct buffer {
    int64_t size;
    int64_t place;         /* in the arena, or -1 */
    int64_t before, after; /* in `bytes`, or -1 */
    int64_t float_bits;    /* 16, 32, 64; 17: bfloat16; 0: no float */
};

struct job {
    const char *name;
    int32_t (*enter)(void *context, int64_t thread, int64_t threads);
    const struct buffer *buffers;
    int64_t count, arena, scratch, once;
};

#include "jobs.h"

static char *memory(int64_t size) {
    int64_t whole = (size + 127) / 64 * 64;
    char *made = aligned_alloc(64, whole);
    return memset(made, 0xA5, whole);
}

static int is_nan(const unsigned char *at, int64_t bits) {
    uint64_t value = 0;
    memcpy(&value, at, bits / 8);
    switch (bits) {
    case 64: return (value & INT64_MAX) > 0x7ff0000000000000ull;
    case 32: return (value & INT32_MAX) > 0x7f800000u;
    case 17: return (value & INT16_MAX) > 0x7f80u;
    default: return (value & INT16_MAX) > 0x7c00u;
    }
}

static int same(const unsigned char *found, const unsigned char *wanted, int64_t size, int64_t bits) {
    if (!memcmp(found, wanted, size)) return 1;
    if (!bits) return 0;
    int64_t width = bits / 8;
    for (int64_t at = 0; at < size; at += width)
        if (memcmp(found + at, wanted + at, width) && !(is_nan(found + at, bits) && is_nan(wanted + at, bits))) return 0;
    return 1;
}

enum { GOOD, FAILED, DIFFERS, NO_INSTRUCTION };

static int run(const struct job *job) {
    char *arena = memory(job->arena), *scratch = memory(job->scratch), *context = memory(CONTEXT_BYTES);
    void **table = malloc(sizeof *table * (job->count + 1));
    for (int64_t i = 0; i < job->count; i++) {
        const struct buffer *buffer = &job->buffers[i];
        table[i] = buffer->place >= 0 ? arena + buffer->place : memory(buffer->size);
        if (buffer->before >= 0) memcpy(table[i], bytes + buffer->before, buffer->size);
    }
    memset(context, 0, CONTEXT_BYTES);
    memset(scratch, 0, TAKEN_BYTES);
    *(void ***)(context + BUFFERS) = table;
    *(char **)(context + SCRATCH) = scratch;
    *(int64_t *)(context + SCRATCH_STRIDE) = (job->scratch + 63) / 64 * 64;
    for (int64_t call = job->once; call >= 0; call--) {
        *(int64_t *)(context + ONCE) = call ? job->once - call + 1 : 0;
        memset(context, 0, BUFFERS);
        if (job->enter(context, 0, 1)) return FAILED;
    }
    for (int64_t i = 0; i < job->count; i++) {
        const struct buffer *buffer = &job->buffers[i];
        if (buffer->after >= 0 && !same(table[i], bytes + buffer->after, buffer->size, buffer->float_bits)) return DIFFERS;
    }
    return GOOD;
}

/* The 16 bytes number `part` of a vector register in the standard form of XSAVE's area (Intel's manual, volume 1, 13.4
   and 13.5; offsets of components 2, 5, 6 and 7 are 576, 1088, 1152 and 1664). */
static unsigned char *part_of(unsigned char *area, int number, int part) {
    if (number >= 16) return area + 1664 + (number - 16) * 64 + part * 16;
    if (part == 0) return area + 160 + number * 16;
    return part == 1 ? area + 576 + number * 16 : area + 1152 + number * 32 + (part - 2) * 16;
}

/* Bochs 2.7 refuses gathers and scatters by eight indices of 64 bits (VGATHERQPS and its like: EVEX.512.66.0F38 91, 93,
   A1 and A3, W1 of 64-bit elements; Intel's manual, volume 2): they are carried out here. Whatever else it refuses is
   reported. */
static void refused(int signal, siginfo_t *info, void *given) {
    static const int registers[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                      REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    ucontext_t *machine = given;
    greg_t *general = machine->uc_mcontext.gregs;
    unsigned char *code = (unsigned char *)general[REG_RIP], *area = (unsigned char *)machine->uc_mcontext.fpregs;
    int gather = (code[4] & 0xFD) == 0x91, known = gather || (code[4] & 0xFD) == 0xA1, width = code[2] & 0x80 ? 8 : 4;
    int evex = code[0] == 0x62 && (code[1] & 3) == 2 && (code[3] & 0x60) == 0x40;
    (void)signal, (void)info;
    if (!evex || !known || (code[5] & 7) != 4 || code[5] >= 0xC0) {
        printf("\nrefused:");
        for (int i = 0; i < 12; i++) printf(" %02x", code[i]);
        printf("\n");
        fflush(stdout);
        _exit(NO_INSTRUCTION);
    }
    int mode = code[5] >> 6, scale = code[6] >> 6, length = 7, no_base = mode == 0 && (code[6] & 7) == 5;
    int vector = (code[5] >> 3 & 7) | !(code[1] & 0x80) << 3 | !(code[1] & 0x10) << 4;
    int index = (code[6] >> 3 & 7) | !(code[1] & 0x40) << 3 | !(code[3] & 8) << 4;
    int base = (code[6] & 7) | !(code[1] & 0x20) << 3;
    int64_t displacement = 0;
    if (mode == 1) {
        displacement = width * (int64_t)(int8_t)code[7];
        length = 8;
    } else if (mode == 2 || no_base) {
        int32_t stored;
        memcpy(&stored, code + 7, 4);
        displacement = stored;
        length = 11;
    }
    uint64_t *mask = (uint64_t *)(area + 1088 + 8 * (code[3] & 7)), from = no_base ? 0 : (uint64_t)general[registers[base]];
    for (int lane = 0; lane < 8; lane++) {
        if (!(*mask >> lane & 1)) continue;
        int64_t offset;
        memcpy(&offset, part_of(area, index, lane / 2) + 8 * (lane % 2), 8);
        char *element = (char *)(from + ((uint64_t)offset << scale) + displacement);
        unsigned char *held = part_of(area, vector, lane * width / 16) + lane * width % 16;
        memcpy(gather ? (void *)held : element, gather ? element : (void *)held, width);
    }
    *mask = 0;
    if (gather && width == 4) memset(part_of(area, vector, 2), 0, 16), memset(part_of(area, vector, 3), 0, 16);
    *(uint64_t *)(area + 512) |= 0xE7; /* all components are in use now */
    general[REG_RIP] += length;
}

int main(void) {
    static const char *const words[] = {"good", "failed", "differs", "no such instruction"};
    int first = getpid() == 1, bad = 0, serial = first ? open("/dev/ttyS0", O_RDWR) : -1;
    if (serial >= 0) dup2(serial, 1);
    printf("\nbegin %d\n", JOBS);
    for (int i = 0; i < JOBS; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            struct sigaction action = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
            sigaction(SIGILL, &action, 0);
            _exit(run(&jobs[i]));
        }
        int status = 0;
        waitpid(child, &status, 0);
        int known = WIFEXITED(status) && WEXITSTATUS(status) <= NO_INSTRUCTION;
        printf("job %d %s\n", i, known ? words[WEXITSTATUS(status)] : "was killed");
        bad += status != 0;
    }
    printf("end %d\n", bad);
    fflush(stdout);
    if (first) {
        sleep(1);
        reboot(RB_HALT_SYSTEM);
    }
    return bad != 0;
}
