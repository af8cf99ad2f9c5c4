// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sizes, alignments, offsets and values in the headers of rdma-core 44, compared with those of this module at compile time. Written by
//! `cargo xtask verbs --layout`.

#![allow(clippy::unreadable_literal, reason = "values as the C compiler prints them")]

use core::mem::{align_of, offset_of, size_of};

/// Returns the size of a field.
const fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// A type, its size and alignment, and for each field its offset and size.
macro_rules! layout {
    ($type:path: $size:literal, $align:literal; $($field:ident $offset:literal $bytes:literal,)*) => {
        const _: () = {
            assert!(size_of::<$type>() == $size, stringify!($type));
            assert!(align_of::<$type>() == $align, stringify!($type));
            $(
                assert!(offset_of!($type, $field) == $offset, concat!(stringify!($type), "::", stringify!($field)));
                assert!(
                    size_of_field(|value: &$type| &value.$field) == $bytes,
                    concat!(stringify!($type), "::", stringify!($field))
                );
            )*
        };
    };
}

/// A constant and its value.
macro_rules! value {
    ($name:path, $value:literal) => {
        const _: () = assert!($name as i128 == $value, stringify!($name));
    };
}

layout!(super::attributes::IbvGlobalRoute: 24, 8; dgid 0 16, flow_label 16 4, sgid_index 20 1, hop_limit 21 1, traffic_class 22 1,);
layout!(super::attributes::IbvGrh: 40, 8; version_tclass_flow 0 4, paylen 4 2, next_hdr 6 1, hop_limit 7 1, sgid 8 16, dgid 24 16,);
layout!(super::attributes::IbvAhAttr: 32, 8; grh 0 24, dlid 24 2, sl 26 1, src_path_bits 27 1, static_rate 28 1, is_global 29 1, port_num 30 1,);
layout!(super::attributes::IbvQpCap: 20, 4; max_send_wr 0 4, max_recv_wr 4 4, max_send_sge 8 4, max_recv_sge 12 4, max_inline_data 16 4,);
layout!(super::attributes::IbvQpInitAttr: 64, 8; qp_context 0 8, send_cq 8 8, recv_cq 16 8, srq 24 8, cap 32 20, qp_type 52 4, sq_sig_all 56 4,);
layout!(super::attributes::IbvRxHashConf: 24, 8; rx_hash_function 0 1, rx_hash_key_len 1 1, rx_hash_key 8 8, rx_hash_fields_mask 16 8,);
layout!(super::attributes::IbvQpInitAttrEx: 136, 8; qp_context 0 8, send_cq 8 8, recv_cq 16 8, srq 24 8, cap 32 20, qp_type 52 4, sq_sig_all 56 4, comp_mask 60 4, pd 64 8, xrcd 72 8, create_flags 80 4, max_tso_header 84 2, rwq_ind_tbl 88 8, rx_hash_conf 96 24, source_qpn 120 4, send_ops_flags 128 8,);
layout!(super::attributes::IbvQpAttr: 144, 8; qp_state 0 4, cur_qp_state 4 4, path_mtu 8 4, path_mig_state 12 4, qkey 16 4, rq_psn 20 4, sq_psn 24 4, dest_qp_num 28 4, qp_access_flags 32 4, cap 36 20, ah_attr 56 32, alt_ah_attr 88 32, pkey_index 120 2, alt_pkey_index 122 2, en_sqd_async_notify 124 1, sq_draining 125 1, max_rd_atomic 126 1, max_dest_rd_atomic 127 1, min_rnr_timer 128 1, port_num 129 1, timeout 130 1, retry_cnt 131 1, rnr_retry 132 1, alt_port_num 133 1, alt_timeout 134 1, rate_limit 136 4,);
layout!(super::attributes::IbvSrqAttr: 12, 4; max_wr 0 4, max_sge 4 4, srq_limit 8 4,);
layout!(super::attributes::IbvSrqInitAttr: 24, 8; srq_context 0 8, attr 8 12,);
layout!(super::attributes::IbvTmCap: 8, 4; max_num_tags 0 4, max_ops 4 4,);
layout!(super::attributes::IbvSrqInitAttrEx: 64, 8; srq_context 0 8, attr 8 12, comp_mask 20 4, srq_type 24 4, pd 32 8, xrcd 40 8, cq 48 8, tm_cap 56 8,);
layout!(super::attributes::IbvCqInitAttrEx: 56, 8; cqe 0 4, cq_context 8 8, channel 16 8, comp_vector 24 4, wc_flags 32 8, comp_mask 40 4, flags 44 4, parent_domain 48 8,);
layout!(super::attributes::IbvModerateCq: 4, 2; cq_count 0 2, cq_period 2 2,);
layout!(super::attributes::IbvModifyCqAttr: 8, 4; attr_mask 0 4, moderate 4 4,);
layout!(super::attributes::AsyncElement: 8, 8;);
layout!(super::attributes::IbvAsyncEvent: 16, 8; element 0 8, event_type 8 4,);
layout!(super::attributes::IbvEce: 12, 4; vendor_id 0 4, options 4 4, comp_mask 8 4,);
layout!(super::context::IbvContextOps: 256, 8; query_device 0 8, query_port 8 8, compat_alloc_pd 16 8, compat_dealloc_pd 24 8, compat_reg_mr 32 8, compat_rereg_mr 40 8, compat_dereg_mr 48 8, alloc_mw 56 8, bind_mw 64 8, dealloc_mw 72 8, compat_create_cq 80 8, poll_cq 88 8, req_notify_cq 96 8, compat_cq_event 104 8, compat_resize_cq 112 8, compat_destroy_cq 120 8, compat_create_srq 128 8, compat_modify_srq 136 8, compat_query_srq 144 8, compat_destroy_srq 152 8, post_srq_recv 160 8, compat_create_qp 168 8, compat_query_qp 176 8, compat_modify_qp 184 8, compat_destroy_qp 192 8, post_send 200 8, post_recv 208 8, compat_create_ah 216 8, compat_destroy_ah 224 8, compat_attach_mcast 232 8, compat_detach_mcast 240 8, compat_async_event 248 8,);
layout!(super::context::IbvContext: 328, 8; device 0 8, ops 8 256, cmd_fd 264 4, async_fd 268 4, num_comp_vectors 272 4, mutex 280 40, abi_compat 320 8,);
layout!(super::context::VerbsContext: 648, 8; query_port 0 8, advise_mr 8 8, alloc_null_mr 16 8, read_counters 24 8, attach_counters_point_flow 32 8, create_counters 40 8, destroy_counters 48 8, reg_dm_mr 56 8, alloc_dm 64 8, free_dm 72 8, modify_flow_action_esp 80 8, destroy_flow_action 88 8, create_flow_action_esp 96 8, modify_qp_rate_limit 104 8, alloc_parent_domain 112 8, dealloc_td 120 8, alloc_td 128 8, modify_cq 136 8, post_srq_ops 144 8, destroy_rwq_ind_table 152 8, create_rwq_ind_table 160 8, destroy_wq 168 8, modify_wq 176 8, create_wq 184 8, query_rt_values 192 8, create_cq_ex 200 8, private 208 8, query_device_ex 216 8, destroy_flow 224 8, placeholder2 232 8, create_flow 240 8, placeholder1 248 8, open_qp 256 8, create_qp_ex 264 8, get_srq_num 272 8, create_srq_ex 280 8, open_xrcd 288 8, close_xrcd 296 8, placeholder3 304 8, size 312 8, context 320 328,);
layout!(super::device::IbvDevice: 664, 8; ops 0 16, node_type 16 4, transport_type 20 4, name 24 64, dev_name 88 64, dev_path 152 256, ibdev_path 408 256,);
layout!(super::device::IbvDeviceAttr: 232, 8; fw_ver 0 64, node_guid 64 8, sys_image_guid 72 8, max_mr_size 80 8, page_size_cap 88 8, vendor_id 96 4, vendor_part_id 100 4, hw_ver 104 4, max_qp 108 4, max_qp_wr 112 4, device_cap_flags 116 4, max_sge 120 4, max_sge_rd 124 4, max_cq 128 4, max_cqe 132 4, max_mr 136 4, max_pd 140 4, max_qp_rd_atom 144 4, max_ee_rd_atom 148 4, max_res_rd_atom 152 4, max_qp_init_rd_atom 156 4, max_ee_init_rd_atom 160 4, atomic_cap 164 4, max_ee 168 4, max_rdd 172 4, max_mw 176 4, max_raw_ipv6_qp 180 4, max_raw_ethy_qp 184 4, max_mcast_grp 188 4, max_mcast_qp_attach 192 4, max_total_mcast_qp_attach 196 4, max_ah 200 4, max_fmr 204 4, max_map_per_fmr 208 4, max_srq 212 4, max_srq_wr 216 4, max_srq_sge 220 4, max_pkeys 224 2, local_ca_ack_delay 226 1, phys_port_cnt 227 1,);
layout!(super::device::IbvOdpCaps: 24, 8; general_caps 0 8, rc_odp_caps 8 4, uc_odp_caps 12 4, ud_odp_caps 16 4,);
layout!(super::device::IbvTsoCaps: 8, 4; max_tso 0 4, supported_qpts 4 4,);
layout!(super::device::IbvRssCaps: 32, 8; supported_qpts 0 4, max_rwq_indirection_tables 4 4, max_rwq_indirection_table_size 8 4, rx_hash_fields_mask 16 8, rx_hash_function 24 1,);
layout!(super::device::IbvPacketPacingCaps: 12, 4; qp_rate_limit_min 0 4, qp_rate_limit_max 4 4, supported_qpts 8 4,);
layout!(super::device::IbvTmCaps: 20, 4; max_rndv_hdr_size 0 4, max_num_tags 4 4, flags 8 4, max_ops 12 4, max_sge 16 4,);
layout!(super::device::IbvCqModerationCaps: 4, 2; max_cq_count 0 2, max_cq_period 2 2,);
layout!(super::device::IbvPciAtomicCaps: 6, 2; fetch_add 0 2, swap 2 2, compare_swap 4 2,);
layout!(super::device::IbvDeviceAttrEx: 400, 8; orig_attr 0 232, comp_mask 232 4, odp_caps 240 24, completion_timestamp_mask 264 8, hca_core_clock 272 8, device_cap_flags_ex 280 8, tso_caps 288 8, rss_caps 296 32, max_wq_type_rq 328 4, packet_pacing_caps 332 12, raw_packet_caps 344 4, tm_caps 348 20, cq_mod_caps 368 4, max_dm_size 376 8, pci_atomic_caps 384 6, xrc_odp_caps 392 4, phys_port_cnt_ex 396 4,);
layout!(super::device::IbvQueryDeviceExInput: 4, 4; comp_mask 0 4,);
layout!(super::device::IbvPortAttr: 52, 4; state 0 4, max_mtu 4 4, active_mtu 8 4, gid_tbl_len 12 4, port_cap_flags 16 4, max_msg_sz 20 4, bad_pkey_cntr 24 4, qkey_viol_cntr 28 4, pkey_tbl_len 32 2, lid 34 2, sm_lid 36 2, lmc 38 1, max_vl_num 39 1, sm_sl 40 1, subnet_timeout 41 1, init_type_reply 42 1, active_width 43 1, active_speed 44 1, phys_state 45 1, link_layer 46 1, flags 47 1, port_cap_flags2 48 2,);
layout!(super::device::IbvGidEntry: 32, 8; gid 0 16, gid_index 16 4, port_num 20 4, gid_type 24 4, ndev_ifindex 28 4,);
layout!(super::objects::IbvPd: 16, 8; context 0 8, handle 8 4,);
layout!(super::objects::IbvMr: 48, 8; context 0 8, pd 8 8, addr 16 8, length 24 8, handle 32 4, lkey 36 4, rkey 40 4,);
layout!(super::objects::IbvMw: 32, 8; context 0 8, pd 8 8, rkey 16 4, handle 20 4, mw_type 24 4,);
layout!(super::objects::IbvAh: 24, 8; context 0 8, pd 8 8, handle 16 4,);
layout!(super::objects::IbvCompChannel: 16, 8; context 0 8, fd 8 4, refcnt 12 4,);
layout!(super::objects::IbvCq: 128, 8; context 0 8, channel 8 8, cq_context 16 8, handle 24 4, cqe 28 4, mutex 32 40, cond 72 48, comp_events_completed 120 4, async_events_completed 124 4,);
layout!(super::objects::IbvPollCqAttr: 4, 4; comp_mask 0 4,);
layout!(super::objects::IbvCqEx: 288, 8; comp_mask 128 4, status 132 4, wr_id 136 8, start_poll 144 8, next_poll 152 8, end_poll 160 8, read_opcode 168 8, read_vendor_err 176 8, read_byte_len 184 8, read_imm_data 192 8, read_qp_num 200 8, read_src_qp 208 8, read_wc_flags 216 8, read_slid 224 8, read_sl 232 8, read_dlid_path_bits 240 8, read_completion_ts 248 8, read_cvlan 256 8, read_flow_tag 264 8, read_tm_info 272 8, read_completion_wallclock_ns 280 8,);
layout!(super::objects::IbvSrq: 128, 8; context 0 8, srq_context 8 8, pd 16 8, handle 24 4, mutex 32 40, cond 72 48, events_completed 120 4,);
layout!(super::objects::IbvQp: 160, 8; context 0 8, qp_context 8 8, pd 16 8, send_cq 24 8, recv_cq 32 8, srq 40 8, handle 48 4, qp_num 52 4, state 56 4, qp_type 60 4, mutex 64 40, cond 104 48, events_completed 152 4,);
layout!(super::objects::IbvQpEx: 352, 8; comp_mask 160 8, wr_id 168 8, wr_flags 176 4, wr_atomic_cmp_swp 184 8, wr_atomic_fetch_add 192 8, wr_bind_mw 200 8, wr_local_inv 208 8, wr_rdma_read 216 8, wr_rdma_write 224 8, wr_rdma_write_imm 232 8, wr_send 240 8, wr_send_imm 248 8, wr_send_inv 256 8, wr_send_tso 264 8, wr_set_ud_addr 272 8, wr_set_xrc_srqn 280 8, wr_set_inline_data 288 8, wr_set_inline_data_list 296 8, wr_set_sge 304 8, wr_set_sge_list 312 8, wr_start 320 8, wr_complete 328 8, wr_abort 336 8, wr_atomic_write 344 8,);
layout!(super::objects::IbvSge: 16, 8; addr 0 8, length 8 4, lkey 12 4,);
layout!(super::objects::IbvDataBuf: 16, 8; addr 0 8, length 8 8,);
layout!(super::objects::IbvMwBindInfo: 32, 8; mr 0 8, addr 8 8, length 16 8, mw_access_flags 24 4,);
layout!(super::objects::IbvMwBind: 48, 8; wr_id 0 8, send_flags 8 4, bind_info 16 32,);
layout!(super::objects::WrRdma: 16, 8; remote_addr 0 8, rkey 8 4,);
layout!(super::objects::WrAtomic: 32, 8; remote_addr 0 8, compare_add 8 8, swap 16 8, rkey 24 4,);
layout!(super::objects::WrUd: 16, 8; ah 0 8, remote_qpn 8 4, remote_qkey 12 4,);
layout!(super::objects::WrRemote: 32, 8;);
layout!(super::objects::WrBind: 48, 8; mw 0 8, rkey 8 4, bind_info 16 32,);
layout!(super::objects::WrTso: 16, 8; hdr 0 8, hdr_sz 8 2, mss 10 2,);
layout!(super::objects::WrTail: 48, 8;);
layout!(super::objects::IbvSendWr: 128, 8; wr_id 0 8, next 8 8, sg_list 16 8, num_sge 24 4, opcode 28 4, send_flags 32 4, imm_data 36 4, wr 40 32, remote_srqn 72 4, tail 80 48,);
layout!(super::objects::IbvRecvWr: 32, 8; wr_id 0 8, next 8 8, sg_list 16 8, num_sge 24 4,);
layout!(super::objects::IbvWc: 48, 8; wr_id 0 8, status 8 4, opcode 12 4, vendor_err 16 4, byte_len 20 4, imm_data 24 4, qp_num 28 4, src_qp 32 4, wc_flags 36 4, pkey_index 40 2, slid 42 2, sl 44 1, dlid_path_bits 45 1,);
layout!(super::rdma::RdmaIbAddr: 40, 8; sgid 0 16, dgid 16 16, pkey 32 2,);
layout!(super::rdma::RdmaAddr: 296, 8; src_storage 0 128, dst_storage 128 128, ibaddr 256 40,);
layout!(super::rdma::RdmaRoute: 312, 8; addr 0 296, path_rec 296 8, num_paths 304 4,);
layout!(super::rdma::RdmaEventChannel: 4, 4; fd 0 4,);
layout!(super::rdma::RdmaCmId: 416, 8; verbs 0 8, channel 8 8, context 16 8, qp 24 8, route 32 312, ps 344 4, port_num 348 1, event 352 8, send_cq_channel 360 8, send_cq 368 8, recv_cq_channel 376 8, recv_cq 384 8, srq 392 8, pd 400 8, qp_type 408 4,);
layout!(super::rdma::RdmaConnParam: 24, 8; private_data 0 8, private_data_len 8 1, responder_resources 9 1, initiator_depth 10 1, flow_control 11 1, retry_count 12 1, rnr_retry_count 13 1, srq 14 1, qp_num 16 4,);
layout!(super::rdma::RdmaUdParam: 56, 8; private_data 0 8, private_data_len 8 1, ah_attr 16 32, qp_num 48 4, qkey 52 4,);
layout!(super::rdma::EventParam: 56, 8;);
layout!(super::rdma::RdmaCmEvent: 80, 8; id 0 8, listen_id 8 8, event 16 4, status 20 4, param 24 56,);
layout!(super::rdma::RdmaAddrinfo: 96, 8; ai_flags 0 4, ai_family 4 4, ai_qp_type 8 4, ai_port_space 12 4, ai_src_len 16 4, ai_dst_len 20 4, ai_src_addr 24 8, ai_dst_addr 32 8, ai_src_canonname 40 8, ai_dst_canonname 48 8, ai_route_len 56 8, ai_route 64 8, ai_connect_len 72 8, ai_connect 80 8, ai_next 88 8,);
value!(super::flags::IBV_NODE_CA, 1);
value!(super::flags::IBV_TRANSPORT_IB, 0);
value!(super::flags::IBV_PORT_ACTIVE, 4);
value!(super::flags::IBV_LINK_LAYER_ETHERNET, 2);
value!(super::flags::IBV_PORT_CM_SUP, 65536);
value!(super::flags::IBV_PORT_IP_BASED_GIDS, 67108864);
value!(super::flags::IBV_GID_TYPE_ROCE_V2, 2);
value!(super::flags::IBV_ATOMIC_HCA, 1);
value!(super::flags::IBV_DEVICE_CURR_QP_STATE_MOD, 128);
value!(super::flags::IBV_DEVICE_RC_RNR_NAK_GEN, 4096);
value!(super::flags::IBV_DEVICE_SRQ_RESIZE, 8192);
value!(super::flags::IBV_DEVICE_MEM_MGT_EXTENSIONS, 2097152);
value!(super::flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B, 16777216);
value!(super::flags::IBV_ACCESS_LOCAL_WRITE, 1);
value!(super::flags::IBV_ACCESS_REMOTE_WRITE, 2);
value!(super::flags::IBV_ACCESS_REMOTE_READ, 4);
value!(super::flags::IBV_ACCESS_REMOTE_ATOMIC, 8);
value!(super::flags::IBV_ACCESS_MW_BIND, 16);
value!(super::flags::IBV_ACCESS_ZERO_BASED, 32);
value!(super::flags::IBV_ACCESS_ON_DEMAND, 64);
value!(super::flags::IBV_ACCESS_HUGETLB, 128);
value!(super::flags::IBV_ACCESS_OPTIONAL_RANGE, 1072693248);
value!(super::flags::IBV_SEND_FENCE, 1);
value!(super::flags::IBV_SEND_SIGNALED, 2);
value!(super::flags::IBV_SEND_SOLICITED, 4);
value!(super::flags::IBV_SEND_INLINE, 8);
value!(super::flags::IBV_WR_RDMA_WRITE, 0);
value!(super::flags::IBV_WR_RDMA_WRITE_WITH_IMM, 1);
value!(super::flags::IBV_WR_SEND, 2);
value!(super::flags::IBV_WR_SEND_WITH_IMM, 3);
value!(super::flags::IBV_WR_RDMA_READ, 4);
value!(super::flags::IBV_WR_ATOMIC_CMP_AND_SWP, 5);
value!(super::flags::IBV_WR_ATOMIC_FETCH_AND_ADD, 6);
value!(super::flags::IBV_WR_LOCAL_INV, 7);
value!(super::flags::IBV_WR_BIND_MW, 8);
value!(super::flags::IBV_WR_SEND_WITH_INV, 9);
value!(super::flags::IBV_WC_WITH_IMM, 2);
value!(super::flags::IBV_WC_GRH, 1);
value!(super::flags::IBV_WC_WITH_INV, 8);
value!(super::flags::IBV_QPT_RC, 2);
value!(super::flags::IBV_QPT_UC, 3);
value!(super::flags::IBV_QPT_UD, 4);
value!(super::flags::IBV_QPS_RESET, 0);
value!(super::flags::IBV_QPS_INIT, 1);
value!(super::flags::IBV_QPS_RTR, 2);
value!(super::flags::IBV_QPS_RTS, 3);
value!(super::flags::IBV_QPS_SQD, 4);
value!(super::flags::IBV_QPS_ERR, 6);
value!(super::flags::IBV_SRQ_MAX_WR, 1);
value!(super::flags::IBV_SRQ_LIMIT, 2);
value!(super::flags::IBV_QP_INIT_ATTR_PD, 1);
value!(super::flags::IBV_QP_INIT_ATTR_CREATE_FLAGS, 4);
value!(super::flags::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, 64);
value!(super::rdma::RDMA_PS_TCP, 262);
value!(super::rdma::RDMA_PS_UDP, 273);
value!(super::rdma::RAI_PASSIVE, 1);
value!(super::rdma::RAI_NUMERICHOST, 2);
value!(super::rdma::RAI_NOROUTE, 4);
value!(super::rdma::RAI_FAMILY, 8);
