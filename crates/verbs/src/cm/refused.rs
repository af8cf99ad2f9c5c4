// SPDX-License-Identifier: MIT OR Apache-2.0

//! Functions of what is not offered: multicast groups, and sockets over RDMA. Each fails as `EOPNOTSUPP`.

use crate::errno;

macro_rules! refuse {
    ($($name:ident)+) => {$(
        #[doc = concat!("Fails as `EOPNOTSUPP`: `", stringify!($name), "` is not offered.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> isize {
            errno::set(libc::EOPNOTSUPP);
            -1
        }
    )+};
}

refuse! {
    rdma_join_multicast rdma_join_multicast_ex rdma_leave_multicast
    rsocket rbind rlisten raccept rconnect rshutdown rclose rrecv rrecvfrom rrecvmsg rsend rsendto rsendmsg rread
    rreadv rwrite rwritev rpoll rselect rgetpeername rgetsockname rsetsockopt rgetsockopt rfcntl riomap riounmap
    riowrite rdma_reject_ece
}
