// SPDX-License-Identifier: MIT OR Apache-2.0

/* Part of probe.c: unreliable connections, datagrams and atomic operations, on a queue pair that each side makes besides that of the
 * connection and connects by itself. Both sides exchange its numbers over the connection. Then the client requests item after item,
 * and the server checks each; then the server requests, and the client checks.
 *
 * The other side of it is lab/src/interop/native/services.rs.
 */

/* A message with the numbers of a side's queue pair and memory; as long as struct control. */
struct numbers {
	char magic[4];
	uint8_t kind, ok;
	uint16_t flags;
	uint32_t qpn, psn, key;
	uint64_t address;
	uint32_t q_key;
} __attribute__((packed));
_Static_assert(sizeof(struct numbers) == sizeof(struct control), "layout");

enum {
	GRH = 40, /* bytes before a received datagram */
	LONGEST = 65536,
	PATH_MTU = -1, /* as a length */
	ADDITIONS = 16, /* at a time */
};
static const uint32_t IMMEDIATE_DATA = 0x11223344;

/* The queue pair. The memory has LONGEST bytes for WRITEs and atomic operations of the peer, as many for receives, as many to send. */
struct service {
	struct conn *c;
	struct ibv_qp *qp;
	struct ibv_cq *sends, *receives;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	uint8_t *memory, *received, *sent;
	uint32_t mtu, own_q_key;
	struct { uint32_t qpn, key, q_key; uint64_t address; } peer;
};

struct request { enum ibv_wr_opcode opcode; int bytes; };

static const struct request of_connections[] = {
	{ IBV_WR_SEND, 0 }, { IBV_WR_SEND, 1 }, { IBV_WR_SEND, 1024 }, { IBV_WR_SEND_WITH_IMM, 1025 }, { IBV_WR_SEND, LONGEST },
	{ IBV_WR_RDMA_WRITE, 3 }, { IBV_WR_RDMA_WRITE, 4097 }, { IBV_WR_RDMA_WRITE, LONGEST },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, 0 }, { IBV_WR_RDMA_WRITE_WITH_IMM, 1025 }, { IBV_WR_RDMA_WRITE_WITH_IMM, LONGEST },
};
static const struct request of_datagrams[] = {
	{ IBV_WR_SEND, 0 }, { IBV_WR_SEND_WITH_IMM, 0 }, { IBV_WR_SEND, 1 }, { IBV_WR_SEND_WITH_IMM, 1023 },
	{ IBV_WR_SEND, PATH_MTU }, { IBV_WR_SEND_WITH_IMM, PATH_MTU },
};

/* An atomic operation, what the number was before, and what it is afterwards. */
static const struct {
	enum ibv_wr_opcode opcode;
	uint64_t compare_add, swap, before, after;
} of_atomics[] = {
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0, 40, 42 },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, 41, 1, 42, 42 },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, 42, UINT64_MAX - 1, 42, UINT64_MAX - 1 },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 0, UINT64_MAX - 1, 1 },
};

static bool has_immediate(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_write(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void receive_next(struct service *s)
{
	struct ibv_sge sge = { .addr = (uintptr_t)s->received, .length = LONGEST, .lkey = s->mr->lkey };
	struct ibv_recv_wr request = { .sg_list = &sge, .num_sge = 1 }, *bad;
	errno = ibv_post_recv(s->qp, &request, &bad);
	if (errno) fail(s->c, "posting a receive: %s", strerror(errno));
}

static enum ibv_qp_type service_type(const struct conn *c)
{
	return c->scenario == UC ? IBV_QPT_UC : c->scenario == UD ? IBV_QPT_UD : IBV_QPT_RC;
}

static void change(struct service *s, struct ibv_qp_attr *attributes, int mask)
{
	errno = ibv_modify_qp(s->qp, attributes, mask);
	if (errno) fail(s->c, "the change to state %d: %s", attributes->qp_state, strerror(errno));
}

/* Creates the queue pair, exchanges numbers, and connects it. */
static bool open_service(struct service *s, struct conn *c)
{
	enum ibv_qp_type type = service_type(c);
	struct ibv_qp_attr of_conn, attributes = { .qp_state = IBV_QPS_INIT, .port_num = c->id->port_num };
	struct ibv_qp_init_attr init = { 0 };
	s->c = c;
	s->own_q_key = 0x5151;
	if (posix_memalign((void **)&s->memory, 4096, 3 * LONGEST)) die("memory");
	memset(s->memory, 0, 3 * LONGEST);
	s->received = s->memory + LONGEST;
	s->sent = s->received + LONGEST;
	s->mr = ibv_reg_mr(c->pd, s->memory, 3 * LONGEST,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	s->sends = ibv_create_cq(c->id->verbs, 64, NULL, c->completions, 0);
	s->receives = ibv_create_cq(c->id->verbs, 64, NULL, c->completions, 0);
	if (!s->mr || !s->sends || !s->receives) die("resources");
	struct ibv_qp_init_attr created = {
		.send_cq = s->sends, .recv_cq = s->receives, .qp_type = type,
		.cap = { .max_send_wr = 32, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	s->qp = ibv_create_qp(c->pd, &created);
	if (!s->qp) die("queue pair of a service");
	if (ibv_query_qp(c->id->qp, &of_conn, IBV_QP_AV | IBV_QP_PATH_MTU, &init)) die("attributes of the connection");
	s->mtu = 128u << of_conn.path_mtu;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	attributes.qkey = s->own_q_key;
	attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (type == IBV_QPT_RC) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
	change(s, &attributes, mask | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	receive_next(s);
	*(uint64_t *)s->memory = 40;

	const uint32_t psn = 0xfffffe;
	*(struct numbers *)outgoing(c) = (struct numbers){
		.magic = MAGIC, .kind = NUMBERS, .ok = 1, .qpn = htobe32(s->qp->qp_num), .psn = htobe32(psn),
		.key = htobe32(s->mr->rkey), .address = htobe64((uintptr_t)s->memory), .q_key = htobe32(s->own_q_key),
	};
	post(c, IBV_WR_SEND, outgoing(c), sizeof(struct numbers), 0, 0);
	struct control message;
	if (!complete(c, IBV_WC_SUCCESS) || !receive_control(c, NUMBERS, &message)) return false;
	struct numbers peer;
	memcpy(&peer, &message, sizeof peer);
	s->peer.qpn = be32toh(peer.qpn);
	s->peer.key = be32toh(peer.key);
	s->peer.address = be64toh(peer.address);
	s->peer.q_key = be32toh(peer.q_key);

	struct ibv_qp_attr to = {
		.qp_state = IBV_QPS_RTR, .path_mtu = of_conn.path_mtu, .dest_qp_num = s->peer.qpn, .rq_psn = be32toh(peer.psn),
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12, .ah_attr = of_conn.ah_attr,
	};
	mask = IBV_QP_STATE;
	if (type != IBV_QPT_UD) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	change(s, &to, mask);
	to = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = psn, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4,
	};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (type == IBV_QPT_RC) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	change(s, &to, mask);
	if (type == IBV_QPT_UD && !(s->ah = ibv_create_ah(c->pd, &of_conn.ah_attr))) die("address handle");
	/* Both can receive from here on. */
	send_control(c, IBV_WR_SEND, DONE, 0, 0, 0);
	return complete(c, IBV_WC_SUCCESS) && receive_control(c, DONE, &message);
}

static void close_service(struct service *s)
{
	ibv_destroy_qp(s->qp);
	if (s->ah) ibv_destroy_ah(s->ah);
	ibv_dereg_mr(s->mr);
	ibv_destroy_cq(s->sends);
	ibv_destroy_cq(s->receives);
	free(s->memory);
}

static void post_service(struct service *s, struct ibv_send_wr *request, void *data, uint32_t bytes)
{
	struct ibv_sge sge = { .addr = (uintptr_t)data, .length = bytes, .lkey = s->mr->lkey };
	struct ibv_send_wr *bad;
	request->sg_list = &sge;
	request->num_sge = bytes ? 1 : 0;
	request->send_flags = IBV_SEND_SIGNALED;
	request->imm_data = htobe32(IMMEDIATE_DATA);
	errno = ibv_post_send(s->qp, request, &bad);
	if (errno) fail(s->c, "posting a request of a service: %s", strerror(errno));
}

static bool complete_service(struct service *s)
{
	struct ibv_wc wc;
	if (s->c->failed || !next(s->c, s->sends, &wc)) return false;
	return wc.status == IBV_WC_SUCCESS || fail(s->c, "a request of a service: %s", ibv_wc_status_str(wc.status));
}

/* Tells the peer that item i has been requested, and waits for its verdict. */
static bool check(struct conn *c, uint32_t item, uint32_t bytes)
{
	struct control verdict;
	send_control(c, IBV_WR_SEND, CHECK, item, bytes, 0);
	return complete(c, IBV_WC_SUCCESS) && receive_control(c, VERDICT, &verdict);
}

static bool give_verdict(struct conn *c, uint32_t item)
{
	send_control(c, IBV_WR_SEND, VERDICT, item, 0, 0);
	return complete(c, IBV_WC_SUCCESS);
}

static uint32_t bytes_of(const struct service *s, const struct request *request)
{
	return request->bytes == PATH_MTU ? s->mtu : (uint32_t)request->bytes;
}

static void request_items(struct service *s, const struct request *list, uint32_t count)
{
	for (uint32_t i = 0; i < count && !s->c->failed; i++) {
		uint32_t bytes = bytes_of(s, &list[i]);
		struct ibv_send_wr request = { .opcode = list[i].opcode };
		for (uint32_t j = 0; j < bytes; j++) s->sent[j] = pattern(i, j);
		if (s->ah) {
			request.wr.ud.ah = s->ah;
			request.wr.ud.remote_qpn = s->peer.qpn;
			/* The peer must drop the first one. */
			request.wr.ud.remote_qkey = s->peer.q_key ^ 1;
			post_service(s, &request, s->sent, bytes);
			if (!complete_service(s)) return;
			request.wr.ud.remote_qkey = s->peer.q_key;
		} else {
			request.wr.rdma.remote_addr = s->peer.address;
			request.wr.rdma.rkey = s->peer.key;
		}
		post_service(s, &request, s->sent, bytes);
		if (!complete_service(s) || !check(s->c, i, bytes)) return;
	}
}

static bool holds_within(struct service *s, const uint8_t *data, uint32_t item, uint32_t bytes)
{
	for (double limit = now() + 5; now() < limit; usleep(1000)) {
		uint32_t j = 0;
		while (j < bytes && data[j] == pattern(item, j)) j++;
		if (j == bytes) return true;
	}
	return holds(s->c, data, item, bytes);
}

/* Checks a received message or WRITE with immediate data. */
static bool is_received(struct service *s, const struct request *request, uint32_t bytes)
{
	struct ibv_wc wc;
	if (!next(s->c, s->receives, &wc)) return fail(s->c, "nothing was received");
	if (wc.status != IBV_WC_SUCCESS) return fail(s->c, "a receive of a service: %s", ibv_wc_status_str(wc.status));
	uint32_t header = s->ah ? GRH : 0;
	bool is_immediate = wc.wc_flags & IBV_WC_WITH_IMM;
	if (wc.byte_len != bytes + header) return fail(s->c, "%u bytes instead of %u", wc.byte_len, bytes + header);
	if (is_immediate != has_immediate(request->opcode)) return fail(s->c, "flags 0x%x", wc.wc_flags);
	if (is_immediate && be32toh(wc.imm_data) != IMMEDIATE_DATA) return fail(s->c, "immediate data 0x%x", be32toh(wc.imm_data));
	if (s->ah && wc.src_qp != s->peer.qpn) return fail(s->c, "from queue pair %u instead of %u", wc.src_qp, s->peer.qpn);
	/* The addresses of the IPv4 header: those of the host and of the guest end in 1 and 2. */
	if (s->ah && (s->received[35] != 1 || s->received[39] != 2))
		return fail(s->c, "addresses that end in %u and %u", s->received[35], s->received[39]);
	receive_next(s);
	return true;
}

static void check_items(struct service *s, const struct request *list, uint32_t count)
{
	struct control message;
	for (uint32_t i = 0; i < count && receive_control(s->c, CHECK, &message); i++) {
		uint32_t bytes = bytes_of(s, &list[i]);
		const uint8_t *data = is_write(list[i].opcode) ? s->memory : s->received + (s->ah ? GRH : 0);
		if (list[i].opcode != IBV_WR_RDMA_WRITE && !is_received(s, &list[i], bytes)) return;
		if (!holds_within(s, data, i, bytes)) return;
		memset(s->memory, 0, LONGEST);
		if (!give_verdict(s->c, i)) return;
	}
}

static void post_atomic(struct service *s, enum ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap, uint32_t slot)
{
	struct ibv_send_wr request = { .opcode = opcode };
	request.wr.atomic.remote_addr = s->peer.address;
	request.wr.atomic.rkey = s->peer.key;
	request.wr.atomic.compare_add = compare_add;
	request.wr.atomic.swap = swap;
	post_service(s, &request, s->sent + 8 * slot, 8);
}

static void request_atomics(struct service *s)
{
	const uint64_t *results = (const uint64_t *)s->sent;
	uint32_t count = sizeof of_atomics / sizeof *of_atomics;
	for (uint32_t i = 0; i < count; i++) {
		post_atomic(s, of_atomics[i].opcode, of_atomics[i].compare_add, of_atomics[i].swap, 0);
		if (!complete_service(s)) return;
		if (results[0] != of_atomics[i].before) {
			fail(s->c, "atomic operation %u returned 0x%llx", i, (unsigned long long)results[0]);
			return;
		}
		if (!check(s->c, i, 8)) return;
	}
	for (uint32_t i = 0; i < ADDITIONS; i++) post_atomic(s, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, i);
	for (uint32_t i = 0; i < ADDITIONS; i++)
		if (!complete_service(s)) return;
	for (uint32_t i = 0; i < ADDITIONS; i++)
		if (results[i] != i + 1) fail(s->c, "addition %u returned 0x%llx", i, (unsigned long long)results[i]);
	check(s->c, count, 8);
}

static void check_atomics(struct service *s)
{
	const volatile uint64_t *number = (const volatile uint64_t *)s->memory;
	uint32_t count = sizeof of_atomics / sizeof *of_atomics;
	struct control message;
	for (uint32_t i = 0; i <= count && receive_control(s->c, CHECK, &message); i++) {
		uint64_t wanted = i < count ? of_atomics[i].after : 1 + ADDITIONS;
		if (*number != wanted) {
			fail(s->c, "the number is 0x%llx after operation %u", (unsigned long long)*number, i);
			return;
		}
		if (!give_verdict(s->c, i)) return;
	}
}

static void take_turn(struct service *s, bool requests)
{
	const struct request *list = s->c->scenario == UD ? of_datagrams : of_connections;
	uint32_t count = s->c->scenario == UD ? sizeof of_datagrams / sizeof *list : sizeof of_connections / sizeof *list;
	if (s->c->scenario == ATOMICS) requests ? request_atomics(s) : check_atomics(s);
	else requests ? request_items(s, list, count) : check_items(s, list, count);
}

/* Both turns of a side. */
static void use_service(struct conn *c, bool is_client)
{
	struct service s = { 0 };
	if (open_service(&s, c)) take_turn(&s, is_client);
	if (!c->failed) take_turn(&s, !is_client);
	close_service(&s);
}
