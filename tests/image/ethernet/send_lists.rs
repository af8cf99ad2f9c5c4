// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sends of lists with several NET_BUFFERs, whose data begins behind other bytes of their MDLs.

use ndis_sim::SendId;
use ndk_abi::ndis::NDIS_STATUS_SUCCESS;
use support::{
    bed::{finish, miniport, started_with},
    scaling::{MOMENT, arrived, options, over_formats, receive_directed, udp},
};

/// Frames of one flow and of different lengths.
fn frames(count: u32) -> Vec<Vec<u8>> {
    let of = |number: u32| {
        let mut frame = udp(1000, number);
        frame.resize(60 + number as usize * 7 % 1400, number as u8);
        let length = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame
    };
    (0..count).map(of).collect()
}

/// The frames of each list are sent in order, also where they do not fit into the ring at once; then the list is completed.
#[test]
fn frames_of_a_list_arrive_whole_and_in_order_wherever_their_data_begins() {
    over_formats(|format| {
        for pairs in [1, 2] {
            let mut options = options(pairs, 2);
            options.features = options.features | format;
            let Some(bed) = started_with(&options) else { return };
            let [sender, receiver] = bed.machines().map(miniport);
            receive_directed(&receiver);
            for (count, mdl_len, offset) in
                [(1, 0, 1), (3, 0, 64), (3, 16, 16), (5, 13, 5), (5, 13, 27), (400, 500, 1001)]
            {
                let frames = frames(count);
                let list: SendId = sender.send_list(&frames, mdl_len, offset);
                assert_eq!(sender.send_status(list, MOMENT), Some(NDIS_STATUS_SUCCESS));
                assert!(
                    arrived(&bed, frames.len()) == frames,
                    "{count} frames, MDLs of {mdl_len} bytes, behind {offset}"
                );
            }
            finish(bed);
        }
    });
}
