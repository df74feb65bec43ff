/* The number that a library follows: a native 64-bit integer in the file named by
 * PENSTOCK_TEST_NUMBER, which may change at any time. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int64_t *number; /* NULL until the file is mapped */

__attribute__((constructor)) static void map_number(void) {
	const char *path = getenv("PENSTOCK_TEST_NUMBER");
	int fd = path ? open(path, O_RDONLY) : -1;
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *number, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) abort();
	number = p;
	close(fd);
}
