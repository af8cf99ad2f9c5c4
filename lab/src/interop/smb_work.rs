// SPDX-License-Identifier: MIT OR Apache-2.0

//! The work of the two sides of a case of SMB Direct.

/// Work of a case. Samba's client or server is behind the image, the kernel's server or client in the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SmbWork {
    /// Files of these lengths in bytes are copied to the server and back. Others are renamed, deleted and listed.
    Files(&'static [usize]),
    /// A file is copied to the server and back by the longest requests of both sides.
    LongRequests,
    /// The same by requests of 64 KiB, of which this number are outstanding at one time.
    Outstanding(usize),
    /// `dd`, `cp`, `find`, `sha256sum` and an exerciser that makes random calls on one file.
    Exerciser,
    /// This number of clients connect, and then copy files at the same time.
    Connections(usize),
    /// The guest is killed while a file is copied.
    GuestKilled,
    /// The server ends while a file is copied, and is started again.
    ServerEnds,
    /// The directory of the share is removed while a file is copied, and restored.
    ShareRemoved,
    /// The link goes down while a file is copied, until the image has given the connection up. Then it comes up again.
    LinkDown,
}

/// Lengths of the files: below and above the threshold of RDMA, one and several requests.
pub const LENGTHS: [usize; 4] = [25, 4000, 1 << 19, 8 << 20];
/// Lengths for a link with loss. rxe repeats a READ only after its timeout, 2.3 s, when a response is lost.
pub const SHORT_LENGTHS: [usize; 4] = [25, 4000, 1 << 16, 1 << 19];
/// Length of the requests of [`SmbWork::Outstanding`], in bytes.
pub const SHORT_REQUEST: usize = 1 << 16;

impl SmbWork {
    /// Returns the largest READ and WRITE of the server, in bytes.
    #[must_use]
    pub fn largest_request(self) -> usize {
        match self {
            Self::LongRequests => 8 << 20,
            Self::Outstanding(_) => SHORT_REQUEST,
            _ => 1 << 20,
        }
    }

    /// Returns the number of READs and WRITEs by RDMA that the image serves at one time, on one connection.
    #[must_use]
    pub fn outstanding(self) -> usize {
        match self {
            Self::LongRequests => 4,
            Self::Outstanding(requests) => requests,
            Self::Connections(_) => 2,
            _ => 16,
        }
    }
}
