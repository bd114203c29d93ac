/* A clock that a test can step: preloaded into redis-server, it adds a number of microseconds to the real time. The
   number is in the first eight bytes of the file that STEPPED_CLOCK names, which the test writes while the server runs.

   Redis reads the time of TIME, and of the ends of keys, with gettimeofday, and its monotonic clock, which no step
   moves, with clock_gettime. The system is called without libc, because the allocator reads the time before libc has
   found its own functions. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t step(void) {
    static volatile const int64_t *shared;
    static const int64_t none;
    if (!shared) {
        const char *path = getenv("STEPPED_CLOCK");
        int file = path ? open(path, O_RDONLY) : -1;
        void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        shared = mapped == MAP_FAILED ? &none : mapped;
    }
    return *shared;
}

static int64_t now(void) {
    struct timespec real;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &real);
    return (int64_t)real.tv_sec * 1000000 + real.tv_nsec / 1000 + step();
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    int64_t us = now();
    (void)zone;
    time->tv_sec = us / 1000000;
    time->tv_usec = us % 1000000;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (clock != CLOCK_REALTIME) return syscall(SYS_clock_gettime, clock, time);
    int64_t us = now();
    time->tv_sec = us / 1000000;
    time->tv_nsec = us % 1000000 * 1000;
    return 0;
}

time_t time(time_t *seconds) {
    time_t whole = now() / 1000000;
    if (seconds) *seconds = whole;
    return whole;
}
