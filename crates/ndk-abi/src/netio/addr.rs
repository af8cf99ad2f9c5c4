// SPDX-License-Identifier: MIT OR Apache-2.0

//! Socket addresses. Addresses and ports are in network byte order.

/// Scope of an IPv6 address.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SCOPE_LEVEL(pub i32);

impl SCOPE_LEVEL {
    pub const ScopeLevelInterface: Self = Self(1);
    pub const ScopeLevelLink: Self = Self(2);
    pub const ScopeLevelSubnet: Self = Self(3);
    pub const ScopeLevelAdmin: Self = Self(4);
    pub const ScopeLevelSite: Self = Self(5);
    pub const ScopeLevelOrganization: Self = Self(8);
    pub const ScopeLevelGlobal: Self = Self(14);
    pub const ScopeLevelCount: Self = Self(16);
}

/// An IPv4 address in network byte order; the header's union, seen as its 32-bit member.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IN_ADDR {
    pub S_un: IN_ADDR_S_un,
}

/// The address as 32 bits in network byte order.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IN_ADDR_S_un {
    pub S_addr: u32,
}

/// An IPv6 address in network byte order.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IN6_ADDR {
    pub u: IN6_ADDR_u,
}

/// The address as bytes or as 16-bit groups.
#[repr(C)]
#[derive(Clone, Copy)]
pub union IN6_ADDR_u {
    pub Byte: [u8; 16],
    pub Word: [u16; 8],
}

/// Zone and level of a scoped IPv6 address: 28 and 4 bits.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SCOPE_ID {
    pub Value: u32,
}

/// Any socket address; the family says which.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SOCKADDR {
    pub sa_family: ADDRESS_FAMILY,
    pub sa_data: [i8; 14],
}

/// An IPv4 socket address.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SOCKADDR_IN {
    pub sin_family: ADDRESS_FAMILY,
    pub sin_port: u16,
    pub sin_addr: IN_ADDR,
    pub sin_zero: [i8; 8],
}

/// An IPv6 socket address; port and flow information in network byte order.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SOCKADDR_IN6 {
    pub sin6_family: ADDRESS_FAMILY,
    pub sin6_port: u16,
    pub sin6_flowinfo: u32,
    pub sin6_addr: IN6_ADDR,
    pub sin6_scope_id: u32,
}

/// An IPv4 or IPv6 socket address; `si_family` says which.
#[repr(C)]
#[derive(Clone, Copy)]
pub union SOCKADDR_INET {
    pub Ipv4: SOCKADDR_IN,
    pub Ipv6: SOCKADDR_IN6,
    pub si_family: ADDRESS_FAMILY,
}

/// Room for any socket address.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SOCKADDR_STORAGE {
    pub ss_family: ADDRESS_FAMILY,
    pub __ss_pad1: [i8; 6],
    pub __ss_align: i64,
    pub __ss_pad2: [i8; 112],
}

/// An address and the length of its prefix in bits.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IP_ADDRESS_PREFIX {
    pub Prefix: SOCKADDR_INET,
    pub PrefixLength: u8,
}

pub const AF_INET: ADDRESS_FAMILY = 2;
pub const AF_INET6: ADDRESS_FAMILY = 23;
pub const AF_UNSPEC: ADDRESS_FAMILY = 0;

/// `AF_*`.
pub type ADDRESS_FAMILY = u16;
