//! `NDK_MW_DISPATCH`.

use super::{close, object, query_extension};
use crate::mw::Mw;
use ndk_abi::ndk::{NDK_MW, NDK_MW_DISPATCH};

pub static TABLE: NDK_MW_DISPATCH = NDK_MW_DISPATCH {
    NdkCloseMw: Some(close::<Mw>),
    NdkQueryExtension: Some(query_extension),
    NdkGetRemoteTokenFromMw: Some(get_remote_token),
};

unsafe extern "efiapi" fn get_remote_token(mw: *mut NDK_MW) -> u32 {
    object!(Mw, mw, 0).token()
}
