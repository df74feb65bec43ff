/* Loaded before the C library: the wall clock of a server is as many seconds off as
 * the number says. The monotonic clock is left alone. */
#define _GNU_SOURCE
#include "number.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, id, t);
	if (!failed && number && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += *number;
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
