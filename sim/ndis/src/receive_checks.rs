// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of the lists that a miniport indicates.

use std::sync::atomic::Ordering::Relaxed;

use ndk_abi::ndis::NET_BUFFER_LIST;
use nt_sim::{Host, Tolerance, current, guest::Guest};

use crate::{
    adapter::Adapter,
    coalescing,
    list_fields::{
        CHECKSUM, COALESCED, HASH_INFO, HASH_VALUE, INFO, INFO_LEN, PRIORITY_VLAN, SOURCE, STALE_INFO,
        TIMESTAMP_DELTA,
    },
    nbl,
    offload::ReceivedFrame,
    priority_vlan,
    rss::Received,
    rules::{self, broken, require},
};

/// Returns a frame of a list, with what the list says of it.
pub(crate) fn frame_of(
    list: Guest<NET_BUFFER_LIST>,
    buffer: Guest<ndk_abi::ndis::NET_BUFFER>,
) -> ReceivedFrame {
    let word = |offset| list.field::<usize>(offset).read() as u32;
    ReceivedFrame {
        bytes: nbl::bytes(buffer),
        checksum: word(CHECKSUM),
        priority_vlan: word(PRIORITY_VLAN),
        coalesced: word(COALESCED),
    }
}

/// Checks a list that the miniport indicates.
pub(crate) fn check_indicated(adapter: &Adapter, host: &Host, list: Guest<NET_BUFFER_LIST>) {
    require(list.field::<usize>(SOURCE).read() == adapter.handle, rules::COUNTED, || {
        "the SourceHandle of a received NET_BUFFER_LIST is not the adapter's handle".into()
    });
    let info = list.field::<[usize; INFO_LEN]>(INFO);
    let words = info.read();
    if words.contains(&STALE_INFO) {
        adapter.driver.undocumented(
            host,
            Tolerance::StaleInfo,
            "a received NET_BUFFER_LIST has NetBufferListInfo of an earlier frame",
        );
        info.write(words.map(|word| if word == STALE_INFO { 0 } else { word }));
    }
    if !host.state(&nbl::LONG_MDLS).load(Relaxed) {
        for text in nbl::buffers(list).filter_map(nbl::excess_of_mdls) {
            adapter.driver.undocumented(host, Tolerance::LongMdls, &text);
        }
    }
}

/// Checks what the miniport says of the frames of a list.
pub(crate) fn check_frames(adapter: &Adapter, host: &Host, list: Guest<NET_BUFFER_LIST>) {
    for buffer in nbl::buffers(list) {
        let frame = frame_of(list, buffer);
        let general = adapter.attributes().general;
        priority_vlan::require_true(&frame, general.map_or(0, |general| general.MacOptions));
        let reported = adapter.offloads.lock().reported(host.world().now());
        reported.checksums.require_true(&frame);
        let unit = coalescing::Indicated {
            frame: &frame,
            buffers: nbl::buffers(list).count(),
            timestamp_delta: list.field::<usize>(TIMESTAMP_DELTA).read(),
        };
        let mtu = general.map_or(u32::MAX, |general| general.MtuSize);
        if let Err(wrong) = unit.check(reported.coalescing, mtu) {
            broken(rules::COALESCED, wrong);
        }
        check_scaling(adapter, host, list, &frame.bytes);
    }
}

/// Checks hash and processor of a received frame.
fn check_scaling(adapter: &Adapter, host: &Host, list: Guest<NET_BUFFER_LIST>, bytes: &[u8]) {
    let frame = Received {
        bytes,
        info: list.field::<usize>(HASH_INFO).read() as u32,
        value: list.field::<usize>(HASH_VALUE).read() as u32,
        processor: current().cpu().0,
    };
    let now = host.world().now();
    let checked = adapter.rss.lock().check(&frame, now);
    if let Err(violated) = checked {
        broken(rules::HASHED, violated);
    }
}
