// SPDX-License-Identifier: MIT OR Apache-2.0

/*
 * Preloaded into ksmbd.mountd 3.4.7. Its answer about a share has a reserved field that the kernel has since taken for the
 * length of the share's path; with 0 there, the kernel refuses every tree connect (STATUS_BAD_NETWORK_NAME). This library
 * fills the field in.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* KSMBD_EVENT_SHARE_CONFIG_RESPONSE, the length of its fixed part, and the offset of the field. */
enum { SHARE_CONFIG_RESPONSE = 7, FIXED = 536, PAYLOAD_SIZE = 528 };

typedef int nla_put_function(void *, int, int, const void *);

int nla_put(void *message, int type, int length, const void *data)
{
	nla_put_function *put = (nla_put_function *)dlsym(RTLD_NEXT, "nla_put");
	uint32_t size;
	char *copy;
	int result;

	if (type != SHARE_CONFIG_RESPONSE || length < FIXED)
		return put(message, type, length, data);
	copy = malloc(length);
	if (!copy)
		return -5; /* NLE_NOMEM */
	memcpy(copy, data, length);
	memcpy(&size, copy + PAYLOAD_SIZE, sizeof(size));
	if (!size) {
		size = length - FIXED;
		memcpy(copy + PAYLOAD_SIZE, &size, sizeof(size));
	}
	result = put(message, type, length, copy);
	free(copy);
	return result;
}
