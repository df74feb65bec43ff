/* Loaded before the C library: every flush of a server takes so many milliseconds
 * longer as the file named by PENSTOCK_TEST_SLOWDISK says, a native 64-bit integer
 * that may change at any time, also while a flush is under way, and takes them one after the other, as a disk does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *delay; /* NULL until the file is mapped */
static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void map_delay(void) {
	const char *path = getenv("PENSTOCK_TEST_SLOWDISK");
	int fd = path ? open(path, O_RDONLY) : -1;
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *delay, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) abort();
	delay = p;
	close(fd);
}

static void turn(void) {
	if (!delay || *delay <= 0) return;
	pthread_mutex_lock(&disk);
	for (int64_t ms = 0; ms < *delay; ms += 5) nanosleep(&(struct timespec){0, 5000000}, NULL);
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
