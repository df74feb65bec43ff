/* Loaded before the C library: every flush of a server takes as many milliseconds
 * longer as the number says, also one that is under way when it changes. One flush
 * waits for the other, as they do at a disk. */
#define _GNU_SOURCE
#include "number.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;

static void turn(void) {
	if (!number || *number <= 0) return;
	pthread_mutex_lock(&disk);
	for (int64_t ms = 0; ms < *number; ms += 5) nanosleep(&(struct timespec){0, 5000000}, NULL);
	pthread_mutex_unlock(&disk);
}

int fsync(int fd) {
	turn();
	return syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
	turn();
	return syscall(SYS_fdatasync, fd);
}
