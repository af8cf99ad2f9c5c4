// SPDX-License-Identifier: MIT OR Apache-2.0

/*
 * exerciser FILE SEED CALLS LENGTH: makes CALLS random calls on FILE, which stays below LENGTH bytes, and the same on a copy in
 * memory. Compares what is read, and the whole file at the end. Calls are write, read, truncate, the same by a mapping, fsync,
 * and close with open.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST = 1 << 18, KINDS = 8 };

static const char *const names[KINDS] = {
	"write", "read", "truncate", "write by mapping", "read by mapping", "fsync", "close and open", "write at the end",
};

static const char *path;
static uint64_t state;
static int file;
static unsigned char *copy, *buffer;
/* Of the file now, and at most. */
static size_t length, limit;

static uint64_t draw(uint64_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % below;
}

static void fail(unsigned call, const char *what, const char *reason)
{
	printf("call %u, %s: %s\n", call, what, reason);
	exit(1);
}

static void check(unsigned call, const char *what, int good)
{
	if (!good)
		fail(call, what, strerror(errno));
}

static void fill(size_t bytes)
{
	for (size_t at = 0; at < bytes; at++)
		buffer[at] = draw(256);
}

/* Sets the length of the copy; new bytes are zero. */
static void set_length(size_t to)
{
	if (to > length)
		memset(copy + length, 0, to - length);
	length = to;
}

static void write_at(unsigned call, const char *what, size_t at, size_t bytes)
{
	fill(bytes);
	check(call, what, pwrite(file, buffer, bytes, at) == (ssize_t)bytes);
	if (at + bytes > length)
		set_length(at + bytes);
	memcpy(copy + at, buffer, bytes);
}

static void read_at(unsigned call, const char *what, size_t at, size_t bytes)
{
	size_t there = at < length ? length - at : 0;
	ssize_t got = pread(file, buffer, bytes, at);

	check(call, what, got >= 0);
	if ((size_t)got != (bytes < there ? bytes : there))
		fail(call, what, "wrong number of bytes");
	if (memcmp(buffer, copy + at, got))
		fail(call, what, "wrong data");
}

static void by_mapping(unsigned call, const char *what, int writes, size_t at, size_t bytes)
{
	size_t page = at & ~(size_t)4095;
	unsigned char *map;

	if (at >= length)
		return;
	if (bytes > length - at)
		bytes = length - at;
	map = mmap(NULL, at - page + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, page);
	check(call, what, map != MAP_FAILED);
	if (writes) {
		fill(bytes);
		memcpy(map + at - page, buffer, bytes);
		memcpy(copy + at, buffer, bytes);
	} else if (memcmp(map + at - page, copy + at, bytes)) {
		fail(call, what, "wrong data");
	}
	check(call, what, munmap(map, at - page + bytes) == 0);
}

static void compare_all(unsigned call)
{
	struct stat status;

	check(call, "stat", fstat(file, &status) == 0);
	if ((size_t)status.st_size != length)
		fail(call, "stat", "wrong length");
	for (size_t at = 0; at < length; at += LONGEST)
		read_at(call, "read of all", at, LONGEST);
}

static void open_file(unsigned call, int flags)
{
	file = open(path, O_RDWR | flags, 0644);
	check(call, "open", file >= 0);
}

int main(int count, char **arguments)
{
	unsigned calls, made[KINDS] = {0};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count != 5) {
		puts("exerciser FILE SEED CALLS LENGTH");
		return 2;
	}
	path = arguments[1];
	state = strtoull(arguments[2], NULL, 10);
	calls = strtoul(arguments[3], NULL, 10);
	limit = strtoul(arguments[4], NULL, 10);
	copy = calloc(1, limit + LONGEST);
	buffer = malloc(LONGEST);
	if (!copy || !buffer || limit <= LONGEST)
		return 2;
	open_file(0, O_CREAT | O_TRUNC);
	for (unsigned call = 1; call <= calls; call++) {
		unsigned kind = draw(KINDS);
		const char *what = names[kind];
		/* Short ones are as frequent as long ones. */
		size_t bytes = 1 + draw(draw(2) ? LONGEST : 5000), at = draw(limit - LONGEST);

		made[kind]++;
		switch (kind) {
		case 0:
			write_at(call, what, at, bytes);
			break;
		case 1:
			read_at(call, what, at, bytes);
			break;
		case 2:
			/* Not to zero all the time. */
			if (draw(4)) {
				made[kind]--;
				break;
			}
			check(call, what, ftruncate(file, at) == 0);
			set_length(at);
			break;
		case 3:
		case 4:
			by_mapping(call, what, kind == 3, at, bytes);
			break;
		case 5:
			check(call, what, fsync(file) == 0);
			break;
		case 6:
			check(call, what, close(file) == 0);
			open_file(call, 0);
			break;
		case 7:
			if (length < limit - LONGEST)
				write_at(call, what, length, bytes);
			break;
		}
	}
	compare_all(calls + 1);
	check(calls + 1, "close", close(file) == 0);
	open_file(calls + 1, 0);
	compare_all(calls + 2);
	check(calls + 2, "close", close(file) == 0);
	for (unsigned kind = 0; kind < KINDS; kind++)
		printf("%s: %u; ", names[kind], made[kind]);
	printf("%zu bytes\n", length);
	return 0;
}
