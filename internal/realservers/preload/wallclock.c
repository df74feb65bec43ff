/* Loaded before the C library: the wall clock of a server is as many seconds off
 * as the file named by PENSTOCK_TEST_WALLCLOCK says, a native 64-bit integer that
 * may change at any time. The monotonic clock is left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset; /* NULL until the file is mapped */

__attribute__((constructor)) static void map_offset(void) {
	const char *path = getenv("PENSTOCK_TEST_WALLCLOCK");
	int fd = path ? open(path, O_RDONLY) : -1;
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) abort();
	offset = p;
	close(fd);
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, id, t);
	if (!failed && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += *offset;
	return failed;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	struct timespec t;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &t)) return -1;
	tv->tv_sec = t.tv_sec;
	tv->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out) {
	struct timespec t;
	if (clock_gettime(CLOCK_REALTIME, &t)) return -1;
	if (out) *out = t.tv_sec;
	return t.tv_sec;
}
