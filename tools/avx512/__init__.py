"""Code for AVX-512 on a host without it: `python -m tools.avx512 [pytest arguments]`.

The tests named run as on a host with AVX-512, with these differences: results come from the host's own machine, and
each program's code for `cpu/x86-64-v4` is kept with its bytes before and after a run (`recording`). All that was kept
is linked to one static program, host.c (`linking`), which Bochs runs as the only process of an emulated computer with
AVX-512 (`computer`). That program compares bytes; any NaN is any NaN, as in the tests.

Needs Debian's packages bochs, bochs-term, bochsbios, vgabios, linux-image-cloud-amd64, grub-common, grub-pc-bin,
mtools, xorriso and gcc. An emulated computer is a thousand times slower than this one and has one processor:
programs run on one thread, and those with more memory than `--largest` are left out, and counted. The emulator has
faults of its own: what is known of them stands where it is dealt with (host.c, `LEFT_OUT`).
"""
