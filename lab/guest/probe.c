// SPDX-License-Identifier: MIT OR Apache-2.0

/* probe: one side of a connection through the kernel's rdma_cm and verbs, for tests that the packaged tools
 * lack: all message sizes, shared receive queues, invalidation, rejects, each access violation.
 *
 *   probe -s ADDRESS [-p PORT] [-n COUNT] [-t SECONDS]
 *   probe -c ADDRESS [-p PORT] [-l LENGTH] [-j COUNT] [-t SECONDS] SCENARIO
 *
 * The server serves COUNT connections; each client chooses the scenario. The client runs SCENARIO on COUNT
 * simultaneous connections. LENGTH is the length of the longest item, SECONDS the limit of each wait.
 * Exit status: 0 if this side saw the expected results.
 *
 * Protocol: all integers are big-endian. The structures below are the private data of REQ and REP, and the
 * control messages. Item i is ladder[i] bytes of a pattern that depends on i. The client sends requests; the
 * server answers each item with a verdict. docs/interop.md describes the test cases.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

enum scenario {
	SEND = 1, WRITE, READ, INVALIDATE, REJECT, BADKEY, BADRANGE, READKEY, READRANGE, LEAVE, RNR, SHARED, MANY,
	HOLD, NOWRITE, NOREAD, TOOLONG, IMMEDIATE = 20, ATOMIC, UC, UD, ATOMICS,
};

static const struct { const char *name; enum scenario number; } scenarios[] = {
	{ "send", SEND }, { "write", WRITE }, { "read", READ }, { "invalidate", INVALIDATE }, { "reject", REJECT },
	{ "badkey", BADKEY }, { "badrange", BADRANGE }, { "readkey", READKEY }, { "readrange", READRANGE },
	{ "leave", LEAVE }, { "rnr", RNR }, { "srq", SHARED }, { "many", MANY }, { "hold", HOLD }, { "nowrite", NOWRITE },
	{ "noread", NOREAD }, { "toolong", TOOLONG },
	{ "immediate", IMMEDIATE }, { "atomic", ATOMIC }, { "uc", UC }, { "ud", UD }, { "atomics", ATOMICS },
};

static const uint32_t ladder[] = {
	0, 1, 3, 64, 1023, 1024, 1025, 4095, 4096, 4097, 65536, 1048576, 8388608,
};
enum { ITEMS = sizeof ladder / sizeof *ladder, SMALL = 3 /* the item of 64 bytes */ };

#define MAGIC "VRDP"
enum { VERSION = 1 };

struct hello { /* in the REQ */
	char magic[4];
	uint8_t version, scenario;
	uint16_t flags;
	uint32_t count, length;
	uint64_t address;
	uint32_t key;
} __attribute__((packed));

struct welcome { /* in the REP */
	char magic[4];
	uint8_t version, scenario;
	uint16_t flags;
	uint64_t address;
	uint32_t key, length;
} __attribute__((packed));

enum kind { CHECK = 1, VERDICT, KEY, DONE, NUMBERS };
struct control {
	char magic[4];
	uint8_t kind, ok;
	uint16_t flags;
	uint32_t index, length, key;
	uint8_t zero[12];
} __attribute__((packed));
_Static_assert(sizeof(struct hello) == 28 && sizeof(struct welcome) == 24 && sizeof(struct control) == 32, "layout");

static int timeout = 30;
static uint32_t length = 65536, connections = 1;

/* --- one connection ------------------------------------------------------------------------------------- */

enum { SLOTS = 4, LEAST = 8192, DISCONNECT_TIMEOUT = 15 /* seconds */ };

struct conn {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions; /* of both queues */
	struct ibv_cq *sends, *receives;
	struct ibv_srq *srq; /* shared with other connections, or NULL */
	struct ibv_mr *mr;
	struct ibv_mw *window;
	uint8_t *data; /* memory for the peer's WRITEs and READs, then a message to send, then the receive buffers */
	uint32_t size, slot;
	enum scenario scenario;
	uint32_t length;
	struct { uint64_t address; uint32_t key, length; } peer;
	bool connected;
	bool disconnected; /* by the peer, or because it does not respond */
	bool failed;
};

static struct { struct ibv_srq *srq; struct ibv_mr *mr; uint8_t *data; uint32_t slot; } shared;
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

static void say(const char *format, ...)
{
	va_list list;
	pthread_mutex_lock(&output);
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	fflush(stdout);
	pthread_mutex_unlock(&output);
}

static bool fail(struct conn *c, const char *format, ...)
{
	char text[160];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	say("FAILED: %s", text);
	if (c) c->failed = true;
	return false;
}

static void die(const char *what)
{
	fail(NULL, "%s: %s", what, strerror(errno));
	exit(1);
}

static uint8_t pattern(uint32_t item, uint32_t j) { return (uint8_t)(7 * j + (j >> 8) + 31 * item); }

static void fill(struct conn *c, uint32_t item, uint32_t bytes)
{
	for (uint32_t j = 0; j < bytes; j++) c->data[j] = pattern(item, j);
}

static bool holds(struct conn *c, const uint8_t *data, uint32_t item, uint32_t bytes)
{
	for (uint32_t j = 0; j < bytes; j++)
		if (data[j] != pattern(item, j)) return fail(c, "item %u: byte %u of %u is 0x%02x", item, j, bytes, data[j]);
	return true;
}

static struct control *outgoing(struct conn *c) { return (struct control *)(c->data + c->size); }

static uint8_t *slot(struct conn *c, uint64_t number)
{
	return c->srq ? shared.data + number * shared.slot : c->data + c->size + 64 + number * c->slot;
}

static void post_receive(struct conn *c, uint64_t number)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)slot(c, number),
		.length = c->srq ? shared.slot : c->slot,
		.lkey = c->srq ? shared.mr->lkey : c->mr->lkey,
	};
	struct ibv_recv_wr request = { .wr_id = number, .sg_list = &sge, .num_sge = 1 }, *bad;
	errno = c->srq ? ibv_post_srq_recv(c->srq, &request, &bad) : ibv_post_recv(c->id->qp, &request, &bad);
	if (errno) fail(c, "posting a receive: %s", strerror(errno));
}

static void post(struct conn *c, enum ibv_wr_opcode opcode, void *data, uint32_t bytes, uint64_t to, uint32_t key)
{
	struct ibv_sge sge = { .addr = (uintptr_t)data, .length = bytes, .lkey = c->mr->lkey };
	struct ibv_send_wr request = {
		.sg_list = &sge, .num_sge = bytes ? 1 : 0, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	switch (opcode) {
	case IBV_WR_SEND_WITH_INV:
		request.invalidate_rkey = key;
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		request.wr.atomic.remote_addr = to;
		request.wr.atomic.rkey = key;
		request.wr.atomic.compare_add = 1;
		break;
	default:
		request.wr.rdma.remote_addr = to;
		request.wr.rdma.rkey = key;
		request.imm_data = htobe32(0x11223344);
	}
	errno = ibv_post_send(c->id->qp, &request, &bad);
	if (errno) fail(c, "posting a send: %s", strerror(errno));
}

static void send_control(struct conn *c, enum ibv_wr_opcode opcode, enum kind kind, uint32_t index, uint32_t bytes,
			 uint32_t key)
{
	*outgoing(c) = (struct control){
		.magic = MAGIC, .kind = kind, .ok = !c->failed,
		.index = htobe32(index), .length = htobe32(bytes), .key = htobe32(key),
	};
	post(c, opcode, outgoing(c), sizeof(struct control), 0, key);
}

/* Returns whether the peer has disconnected, by the events of the connection manager. */
static bool is_disconnected(struct conn *c)
{
	struct pollfd fd = { .fd = c->id->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	while (!c->disconnected && poll(&fd, 1, 0) > 0 && !rdma_get_cm_event(c->id->channel, &event)) {
		if (event->event != RDMA_CM_EVENT_ESTABLISHED) say("event %s", rdma_event_str(event->event));
		c->disconnected = event->event == RDMA_CM_EVENT_DISCONNECTED || event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT;
		rdma_ack_cm_event(event);
	}
	return c->disconnected;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Waits until a completion of an armed queue or an event of the connection has come, or for a moment. True if the queues may have to be armed
 * again. Threads that only looked from time to time took all of an emulated processor when there were 64. */
static bool wait_for_event(struct conn *c)
{
	struct pollfd fds[] = {
		{ .fd = c->completions->fd, .events = POLLIN }, { .fd = c->id->channel->fd, .events = POLLIN },
	};
	struct ibv_cq *cq;
	void *context;
	if (poll(fds, 2, 100) <= 0 || !fds[0].revents || ibv_get_cq_event(c->completions, &cq, &context)) return false;
	ibv_ack_cq_events(cq, 1);
	return true;
}

/* Waits for the next completion; false if there is none before the peer disconnects or the time limit passes. */
static bool next(struct conn *c, struct ibv_cq *cq, struct ibv_wc *wc)
{
	double limit = now() + timeout;
	bool armed = false;
	for (;;) {
		bool last = is_disconnected(c);
		int n = ibv_poll_cq(cq, 1, wc);
		if (n < 0) return fail(c, "polling");
		if (n > 0) return true;
		if (last) return false;
		if (now() > limit) return fail(c, "no completion for %d s", timeout);
		/* A completion that came before the queue was armed is no event: looks once more. */
		if (armed) armed = !wait_for_event(c);
		else if (ibv_req_notify_cq(cq, 0)) return fail(c, "arming");
		else armed = true;
	}
}

static bool complete(struct conn *c, enum ibv_wc_status wanted)
{
	struct ibv_wc wc;
	if (!next(c, c->sends, &wc)) return fail(c, "disconnected before a request completed");
	if (wc.status != wanted)
		return fail(c, "completed with %s, not %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(wanted));
	return true;
}

/* Waits for the next message; NULL if there is none. The caller posts its receive again. */
static uint8_t *receive(struct conn *c, struct ibv_wc *wc)
{
	if (!next(c, c->receives, wc)) return NULL;
	if (wc->status != IBV_WC_SUCCESS) {
		fail(c, "a receive completed with %s", ibv_wc_status_str(wc->status));
		return NULL;
	}
	return slot(c, wc->wr_id);
}

static bool receive_control(struct conn *c, enum kind kind, struct control *message)
{
	struct ibv_wc wc;
	uint8_t *data = receive(c, &wc);
	if (!data) return c->failed ? false : fail(c, "disconnected before message %d", kind);
	memcpy(message, data, sizeof *message);
	post_receive(c, wc.wr_id);
	if (wc.byte_len != sizeof *message || memcmp(message->magic, MAGIC, 4) || message->kind != kind)
		return fail(c, "a message of %u bytes, kind %u, instead of kind %u", wc.byte_len, message->kind, kind);
	if (!message->ok) return fail(c, "the peer says that item %u is wrong", be32toh(message->index));
	return true;
}

/* Counts flushed receives, for up to a second. */
static int flushed(struct conn *c)
{
	struct ibv_wc wc;
	int count = 0;
	for (int i = 0; i < 1000 && !count; i++) {
		while (ibv_poll_cq(c->receives, 1, &wc) > 0) count += wc.status == IBV_WC_WR_FLUSH_ERR;
		usleep(1000);
	}
	say("%d receives flushed", count);
	return count;
}

/* Returns the protection domain of all connections. */
static struct ibv_pd *domain(struct rdma_cm_id *id)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static struct ibv_pd *pd;
	pthread_mutex_lock(&once);
	if (!pd && !(pd = ibv_alloc_pd(id->verbs))) die("protection domain");
	pthread_mutex_unlock(&once);
	return pd;
}

static void open_conn(struct conn *c, struct rdma_cm_id *id)
{
	struct ibv_pd *pd = c->pd = domain(id);
	c->id = id;
	c->size = (c->length > LEAST ? c->length : LEAST) + 64;
	size_t bytes = c->size + 64 + (size_t)SLOTS * c->slot;
	if (c->scenario == TOOLONG) bytes += c->length + 4096;
	if (posix_memalign((void **)&c->data, 4096, bytes)) die("memory");
	memset(c->data, 0, bytes);
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	if (c->scenario != NOWRITE) rights |= IBV_ACCESS_REMOTE_WRITE;
	if (c->scenario != NOREAD) rights |= IBV_ACCESS_REMOTE_READ;
	c->mr = ibv_reg_mr(pd, c->data, bytes, rights);
	c->completions = ibv_create_comp_channel(id->verbs);
	if (!c->completions) die("completion channel");
	c->sends = ibv_create_cq(id->verbs, 64, NULL, c->completions, 0);
	c->receives = ibv_create_cq(id->verbs, 64, NULL, c->completions, 0);
	if (!c->mr || !c->sends || !c->receives) die("resources");
	struct ibv_qp_init_attr qp = {
		.send_cq = c->sends, .recv_cq = c->receives, .srq = c->srq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = c->srq ? 0 : 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	if (rdma_create_qp(id, pd, &qp)) die("queue pair");
}

/* Marks c as connected and moves it to an event channel of its own: calls of rdma_cm no longer wait, and
 * events are polled. */
static void establish(struct conn *c)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	if (!channel || rdma_migrate_id(c->id, channel)) die("event channel");
	c->connected = true;
}

static void close_conn(struct conn *c)
{
	if (c->connected) {
		double limit = now() + DISCONNECT_TIMEOUT;
		rdma_disconnect(c->id);
		while (!is_disconnected(c) && now() < limit) usleep(1000);
	}
	if (c->id->qp) rdma_destroy_qp(c->id);
	/* Deallocates the window before its region: rxe would wait otherwise. */
	if (c->window) ibv_dealloc_mw(c->window);
	ibv_dereg_mr(c->mr);
	ibv_destroy_cq(c->sends);
	ibv_destroy_cq(c->receives);
	ibv_destroy_comp_channel(c->completions);
	free(c->data);
}

static bool is(const struct conn *c, enum scenario a, enum scenario b) { return c->scenario == a || c->scenario == b; }

static uint32_t items(const struct conn *c)
{
	uint32_t n = 0;
	while (n < ITEMS && ladder[n] <= c->length) n++;
	return n;
}

#include "services.h"

/* --- the client -------------------------------------------------------------------------------- */

static void send_items(struct conn *c, uint32_t first, uint32_t end)
{
	struct control verdict;
	for (uint32_t i = first; i < end && !c->failed; i++) {
		fill(c, i, ladder[i]);
		post(c, IBV_WR_SEND, c->data, ladder[i], 0, 0);
		if (complete(c, IBV_WC_SUCCESS)) receive_control(c, VERDICT, &verdict);
	}
}

static void write_item(struct conn *c, uint32_t item, uint32_t bytes)
{
	struct control verdict;
	fill(c, item, bytes);
	post(c, IBV_WR_RDMA_WRITE, c->data, bytes, c->peer.address, c->peer.key);
	send_control(c, IBV_WR_SEND, CHECK, item, bytes, 0);
	if (complete(c, IBV_WC_SUCCESS) && complete(c, IBV_WC_SUCCESS)) receive_control(c, VERDICT, &verdict);
}

static void read_items(struct conn *c)
{
	struct control verdict;
	for (uint32_t i = 0; i < items(c) && !c->failed; i++) {
		memset(c->data, 0xee, ladder[i]);
		post(c, IBV_WR_RDMA_READ, c->data, ladder[i], c->peer.address, c->peer.key);
		if (!complete(c, IBV_WC_SUCCESS)) return;
		holds(c, c->data, 0, ladder[i]);
		send_control(c, IBV_WR_SEND, CHECK, i, ladder[i], 0);
		if (complete(c, IBV_WC_SUCCESS)) receive_control(c, VERDICT, &verdict);
	}
}

/* Posts a request that the peer has to refuse with one of two statuses, then a request that has to be flushed. */
static void violate(struct conn *c, enum ibv_wr_opcode opcode, uint32_t bytes, uint64_t to, uint32_t key,
		    enum ibv_wc_status wanted, enum ibv_wc_status or_else)
{
	struct ibv_wc wc;
	post(c, opcode, c->data, bytes, to, key);
	if (!next(c, c->sends, &wc)) {
		fail(c, "disconnected before the violation completed");
		return;
	}
	say("the peer refused: %s", ibv_wc_status_str(wc.status));
	if (wc.status != wanted && wc.status != or_else) {
		fail(c, "refused with another status than %s", ibv_wc_status_str(wanted));
		return;
	}
	post(c, IBV_WR_SEND, c->data, 64, 0, 0);
	complete(c, IBV_WC_WR_FLUSH_ERR);
}

static void invalidate(struct conn *c)
{
	struct control key, verdict;
	if (!receive_control(c, KEY, &key)) return;
	fill(c, 1, 256);
	post(c, IBV_WR_RDMA_WRITE, c->data, 256, c->peer.address, be32toh(key.key));
	send_control(c, IBV_WR_SEND_WITH_INV, CHECK, 1, 256, be32toh(key.key));
	if (!complete(c, IBV_WC_SUCCESS) || !complete(c, IBV_WC_SUCCESS) || !receive_control(c, VERDICT, &verdict)) return;
	violate(c, IBV_WR_RDMA_WRITE, 256, c->peer.address, be32toh(key.key), IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
}

static void immediate(struct conn *c)
{
	static const struct { enum ibv_wr_opcode opcode; uint32_t bytes; } list[] = {
		{ IBV_WR_SEND_WITH_IMM, 100 }, { IBV_WR_RDMA_WRITE_WITH_IMM, 100 },
		{ IBV_WR_SEND_WITH_IMM, 2500 }, { IBV_WR_RDMA_WRITE_WITH_IMM, 2500 }, { IBV_WR_RDMA_WRITE_WITH_IMM, 0 },
	};
	struct control verdict;
	for (uint32_t i = 0; i < sizeof list / sizeof *list && !c->failed; i++) {
		fill(c, i, list[i].bytes);
		post(c, list[i].opcode, c->data, list[i].bytes, c->peer.address, c->peer.key);
		if (complete(c, IBV_WC_SUCCESS)) receive_control(c, VERDICT, &verdict);
	}
}

static void act(struct conn *c)
{
	uint64_t to = c->peer.address, edge = c->peer.address + c->peer.length - 2000;
	uint32_t key = c->peer.key;
	switch (c->scenario) {
	case SEND: case SHARED: send_items(c, 0, items(c)); break;
	case WRITE: for (uint32_t i = 0; i < items(c) && !c->failed; i++) write_item(c, i, ladder[i]); break;
	case READ: read_items(c); break;
	case MANY:
		send_items(c, 0, items(c));
		for (uint32_t i = 0; i < items(c) && !c->failed; i++) write_item(c, i, ladder[i]);
		break;
	case HOLD: for (uint32_t i = 0; !c->failed; i++) write_item(c, i, c->length); break;
	case RNR: send_items(c, SMALL, SMALL + 1); break;
	case INVALIDATE: invalidate(c); break;
	case IMMEDIATE: immediate(c); break;
	case UC: case UD: case ATOMICS: use_service(c, true); break;
	case BADKEY: violate(c, IBV_WR_RDMA_WRITE, 64, to, key ^ 0x100, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR); break;
	case BADRANGE: violate(c, IBV_WR_RDMA_WRITE, 4000, edge, key, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR); break;
	case READKEY: violate(c, IBV_WR_RDMA_READ, 64, to, key ^ 0x100, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR); break;
	case READRANGE: violate(c, IBV_WR_RDMA_READ, 4000, edge, key, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR); break;
	case NOWRITE: violate(c, IBV_WR_RDMA_WRITE, 64, to, key, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR); break;
	case NOREAD: violate(c, IBV_WR_RDMA_READ, 64, to, key, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR); break;
	/* rxe sends a NAK that the specification has for other errors. */
	case TOOLONG: violate(c, IBV_WR_SEND, c->length + 64 + 4096, 0, 0, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR); break;
	case ATOMIC: violate(c, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, to, key, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR); break;
	case LEAVE: {
		struct ibv_wc wc;
		send_items(c, SMALL, SMALL + 1);
		if (!c->failed && (next(c, c->receives, &wc) || !c->disconnected)) fail(c, "the peer did not disconnect");
		rdma_disconnect(c->id);
		if (!c->failed && !flushed(c)) fail(c, "no receive was flushed");
		break;
	}
	case REJECT: fail(c, "accepted"); break;
	}
}

static struct rdma_addrinfo *target;
static pthread_barrier_t connected;
static enum scenario chosen;

static void *client(void *unused)
{
	(void)unused;
	struct conn *c = calloc(1, sizeof *c);
	struct rdma_cm_id *id;
	if (!c || rdma_create_ep(&id, target, NULL, NULL)) die("create");
	c->scenario = chosen;
	c->length = length;
	c->slot = 64;
	open_conn(c, id);
	for (uint64_t i = 0; i < SLOTS; i++) post_receive(c, i);
	struct hello hello = {
		.magic = MAGIC, .version = VERSION, .scenario = (uint8_t)chosen,
		.count = htobe32(chosen == HOLD ? 0 /* unlimited items */ : connections),
		.length = htobe32(length), .address = htobe64((uintptr_t)c->data), .key = htobe32(c->mr->rkey),
	};
	struct rdma_conn_param param = {
		.private_data = &hello, .private_data_len = sizeof hello, .responder_resources = 4, .initiator_depth = 4,
		.retry_count = 7, .rnr_retry_count = 7,
	};
	if (rdma_connect(id, &param)) {
		int event = id->event ? (int)id->event->event : -1, status = id->event ? id->event->status : 0;
		say("not connected: %s, status %d", event < 0 ? strerror(errno) : rdma_event_str(event), status);
		bool refused = event == RDMA_CM_EVENT_REJECTED && status == 28 && id->event->param.conn.private_data &&
			       !memcmp(id->event->param.conn.private_data, "no thanks", 9);
		if (chosen != REJECT || !refused) fail(c, "no connection");
		pthread_barrier_wait(&connected);
	} else {
		struct welcome welcome = { 0 };
		if (id->event->param.conn.private_data_len >= sizeof welcome)
			memcpy(&welcome, id->event->param.conn.private_data, sizeof welcome);
		if (memcmp(welcome.magic, MAGIC, 4)) fail(c, "no welcome in the REP");
		c->peer.address = be64toh(welcome.address);
		c->peer.key = be32toh(welcome.key);
		c->peer.length = be32toh(welcome.length);
		establish(c);
		pthread_barrier_wait(&connected);
		if (!c->failed) act(c);
	}
	close_conn(c);
	return c->failed ? c : NULL;
}

/* --- the server ------------------------------------------------------------------------------ */

/* Sends what an item was found to be. The peer disconnects once it has the last verdict: if its acknowledgement of that is lost, the request is
 * flushed or does not complete, and the peer, which would miss the verdict, says whether it came. */
static void send_verdict(struct conn *c, uint32_t item, uint32_t bytes, bool is_last)
{
	struct ibv_wc wc;
	send_control(c, IBV_WR_SEND, VERDICT, item, bytes, 0);
	if (!is_last) {
		complete(c, IBV_WC_SUCCESS);
	} else if (next(c, c->sends, &wc) && wc.status != IBV_WC_SUCCESS
		   && !(wc.status == IBV_WC_WR_FLUSH_ERR && is_disconnected(c))) {
		fail(c, "the last verdict completed with %s", ibv_wc_status_str(wc.status));
	}
}

/* `ends` tells whether the peer disconnects after these. */
static void serve_sent(struct conn *c, uint32_t first, uint32_t end, bool ends)
{
	for (uint32_t i = first; i < end && !c->failed; i++) {
		struct ibv_wc wc;
		uint8_t *data = receive(c, &wc);
		if (!data) { fail(c, "disconnected before item %u", i); return; }
		if (wc.byte_len != ladder[i]) fail(c, "item %u has %u bytes", i, wc.byte_len);
		else holds(c, data, i, ladder[i]);
		post_receive(c, wc.wr_id);
		send_verdict(c, i, ladder[i], ends && i + 1 == end);
	}
}

static void serve_checks(struct conn *c, uint32_t end)
{
	for (uint32_t i = 0; i < end && !c->failed; i++) {
		struct control check;
		if (!receive_control(c, CHECK, &check)) return;
		holds(c, c->data, c->scenario == READ ? 0 : be32toh(check.index), be32toh(check.length));
		send_verdict(c, be32toh(check.index), be32toh(check.length), i + 1 == end);
	}
}

/* Serves until the connection fails; the peer is expected to be killed. */
static void serve_until_killed(struct conn *c)
{
	struct ibv_wc wc;
	uint32_t count = 0;
	while (next(c, c->receives, &wc) && wc.status == IBV_WC_SUCCESS) {
		struct control check;
		memcpy(&check, slot(c, wc.wr_id), sizeof check);
		post_receive(c, wc.wr_id);
		if (!holds(c, c->data, be32toh(check.index), be32toh(check.length))) return;
		send_control(c, IBV_WR_SEND, VERDICT, be32toh(check.index), be32toh(check.length), 0);
		if (!next(c, c->sends, &wc) || wc.status != IBV_WC_SUCCESS) break;
		count++;
	}
	say("the peer is gone after %u items", count);
}

static void serve_invalidation(struct conn *c)
{
	struct ibv_mw *window = c->window = ibv_alloc_mw(c->pd, IBV_MW_TYPE_2);
	if (!window) die("window");
	uint32_t key = ibv_inc_rkey(window->rkey);
	struct ibv_send_wr bind = {
		.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = window, .rkey = key, .bind_info = {
			.mr = c->mr, .addr = (uintptr_t)c->data, .length = 4096,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ } },
	}, *bad;
	struct ibv_wc wc;
	if (ibv_post_send(c->id->qp, &bind, &bad)) die("bind");
	if (!complete(c, IBV_WC_SUCCESS)) return;
	send_control(c, IBV_WR_SEND, KEY, 0, 4096, key);
	if (!complete(c, IBV_WC_SUCCESS)) return;
	if (!receive(c, &wc)) { fail(c, "disconnected before the invalidation"); return; }
	/* rxe returns the kernel's value of the flag, which differs from the user-space value. */
	unsigned invalidated = IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK;
	if (!(wc.wc_flags & invalidated) || wc.invalidated_rkey != key)
		fail(c, "flags 0x%x, key 0x%x instead of 0x%x", wc.wc_flags, wc.invalidated_rkey, key);
	holds(c, c->data, 1, 256);
	send_control(c, IBV_WR_SEND, VERDICT, 1, 256, 0);
	complete(c, IBV_WC_SUCCESS);
}

static void serve(struct conn *c)
{
	struct ibv_wc wc;
	switch (c->scenario) {
	case SEND: case SHARED: serve_sent(c, 0, items(c), true); break;
	case WRITE: case READ: serve_checks(c, items(c)); break;
	case MANY: serve_sent(c, 0, items(c), false); serve_checks(c, items(c)); break;
	case HOLD: serve_until_killed(c); return;
	case INVALIDATE: serve_invalidation(c); break;
	case LEAVE: serve_sent(c, SMALL, SMALL + 1, false); return;
	case UC: case UD: case ATOMICS: use_service(c, false); break;
	case RNR:
		usleep(400000);
		for (uint64_t i = 0; i < SLOTS; i++) post_receive(c, i);
		serve_sent(c, SMALL, SMALL + 1, true);
		break;
	default: break;
	}
	/* A violation ends the connection on this side, too: its receives are flushed. */
	bool violated = is(c, INVALIDATE, BADKEY) || is(c, BADRANGE, READKEY) || is(c, READRANGE, ATOMIC) ||
			is(c, NOWRITE, NOREAD) || c->scenario == TOOLONG;
	int flushed_receives = 0;
	while (!c->failed && next(c, c->receives, &wc)) {
		/* The specification requires a length error. */
		bool too_long = wc.status == IBV_WC_LOC_LEN_ERR || wc.status == IBV_WC_LOC_QP_OP_ERR;
		if (c->scenario == TOOLONG && too_long) flushed_receives++;
		else if (violated && wc.status == IBV_WC_WR_FLUSH_ERR) flushed_receives++;
		else fail(c, "one more message, %s", ibv_wc_status_str(wc.status));
	}
	if (violated) say("%d receives flushed", flushed_receives);
	if (violated && !flushed_receives) fail(c, "the violation flushed no receive");
	if (!c->failed && !c->disconnected) fail(c, "the peer did not disconnect");
}

static void share_receives(struct rdma_cm_id *id, uint32_t count, uint32_t bytes)
{
	if (shared.srq) return;
	uint32_t receives = count * 2;
	shared.slot = bytes + 64;
	struct ibv_pd *pd = domain(id);
	struct ibv_srq_init_attr attributes = { .attr = { .max_wr = receives, .max_sge = 1 } };
	if (posix_memalign((void **)&shared.data, 4096, (size_t)receives * shared.slot)) die("memory");
	shared.mr = ibv_reg_mr(pd, shared.data, (size_t)receives * shared.slot, IBV_ACCESS_LOCAL_WRITE);
	shared.srq = ibv_create_srq(pd, &attributes);
	if (!shared.mr || !shared.srq) die("shared receive queue");
	struct conn c = { .srq = shared.srq };
	for (uint64_t i = 0; i < receives; i++) post_receive(&c, i);
}

static void *server(void *argument)
{
	struct conn *c = argument;
	struct welcome welcome = {
		.magic = MAGIC, .version = VERSION, .scenario = (uint8_t)c->scenario,
		.address = htobe64((uintptr_t)c->data), .key = htobe32(c->mr->rkey), .length = htobe32(c->size),
	};
	struct rdma_conn_param param = {
		.private_data = &welcome, .private_data_len = sizeof welcome, .responder_resources = 4, .initiator_depth = 4,
		.rnr_retry_count = 7,
	};
	if (!c->srq && c->scenario != RNR)
		for (uint64_t i = 0; i < SLOTS; i++) post_receive(c, i);
	if (c->scenario == READ) fill(c, 0, c->size);
	if (rdma_accept(c->id, &param)) {
		fail(c, "accept: %s", strerror(errno));
	} else {
		establish(c);
		serve(c);
	}
	close_conn(c);
	return c->failed ? c : NULL;
}

/* Prepares a requested connection for rdma_accept; NULL if it was rejected. */
static struct conn *admit(struct rdma_cm_id *id)
{
	struct hello hello = { 0 };
	if (id->event->param.conn.private_data_len >= sizeof hello)
		memcpy(&hello, id->event->param.conn.private_data, sizeof hello);
	if (memcmp(hello.magic, MAGIC, 4) || hello.scenario == REJECT) {
		rdma_reject(id, "no thanks", 9);
		rdma_destroy_ep(id);
		return NULL;
	}
	struct conn *c = calloc(1, sizeof *c);
	if (!c) die("memory");
	c->scenario = hello.scenario;
	c->length = be32toh(hello.length);
	c->peer.address = be64toh(hello.address);
	c->peer.key = be32toh(hello.key);
	if (c->scenario == SHARED) share_receives(id, be32toh(hello.count), c->length);
	c->srq = c->scenario == SHARED ? shared.srq : NULL;
	bool long_messages = is(c, SEND, MANY) || c->scenario == TOOLONG;
	c->slot = c->scenario == SHARED ? 0 : (long_messages && c->length > 64 ? c->length : 64) + 64;
	open_conn(c, id);
	return c;
}

int main(int argc, char **argv)
{
	const char *address = NULL, *port = "7471";
	bool listens = false, failed = false;
	int option, count = 1;
	while ((option = getopt(argc, argv, "s:c:p:n:l:j:t:")) != -1) switch (option) {
	case 's': listens = true; address = optarg; break;
	case 'c': address = optarg; break;
	case 'p': port = optarg; break;
	case 'n': count = atoi(optarg); break;
	case 'l': length = (uint32_t)atoi(optarg); break;
	case 'j': connections = (uint32_t)atoi(optarg); break;
	case 't': timeout = atoi(optarg); break;
	default: return 2;
	}
	for (size_t i = 0; !listens && optind < argc && i < sizeof scenarios / sizeof *scenarios; i++)
		if (!strcmp(argv[optind], scenarios[i].name)) chosen = scenarios[i].number;
	if (!address || (!listens && !chosen)) {
		fprintf(stderr, "usage: probe -s ADDRESS | -c ADDRESS SCENARIO; see the start of probe.c\n");
		return 2;
	}
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = listens ? RAI_PASSIVE : 0 };
	if (rdma_getaddrinfo(address, port, &hints, &target)) die("address");

	int threads = listens ? count : (int)connections, started = 0;
	pthread_t *thread = calloc((size_t)threads, sizeof *thread);
	if (!thread) die("memory");
	if (listens) {
		struct rdma_cm_id *listener, *id;
		if (rdma_create_ep(&listener, target, NULL, NULL) || rdma_listen(listener, 128)) die("listen");
		say("listening");
		for (int i = 0; i < count; i++) {
			if (rdma_get_request(listener, &id)) die("request");
			struct conn *c = admit(id);
			if (c && pthread_create(&thread[started++], NULL, server, c)) die("thread");
		}
	} else {
		pthread_barrier_init(&connected, NULL, connections);
		for (; started < threads; started++)
			if (pthread_create(&thread[started], NULL, client, NULL)) die("thread");
	}
	for (int i = 0; i < started; i++) {
		void *result;
		pthread_join(thread[i], &result);
		failed |= result != NULL;
	}
	say("%s", failed ? "failed" : "passed");
	return failed;
}
