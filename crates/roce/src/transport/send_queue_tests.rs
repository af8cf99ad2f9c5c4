// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Elements that tell which request they are of.
fn sges(context: u64, count: usize) -> Vec<Sge> {
    (0..count as u32).map(|at| Sge { address: context, length: 5, key: at }).collect()
}

proptest! {
    #[test]
    fn requests_keep_their_order_and_their_payload(
        most in 0u32..3,
        depth in 1u32..5,
        steps in proptest::collection::vec((any::<bool>(), 0usize..4, any::<bool>()), 1..60),
    ) {
        let mut queue = SendQueue::try_new(depth, most, 8).unwrap();
        queue.set_wide(3);
        let room = queue.room_for(3);
        prop_assert!(queue.widen(vec![Sge::NONE; room]).is_empty());
        // Context, number of elements, and whether it has inline data instead.
        let mut model: VecDeque<(u64, usize, bool)> = VecDeque::new();
        for (context, (is_post, count, special)) in (0..).zip(steps) {
            if is_post {
                // A READ may have more elements, others may not; inline data is that of a WRITE.
                let is_long = count > most as usize;
                let is_read = is_long && !special;
                let inline = special && !is_long;
                let (address, key) = (0, 0);
                let operation = if is_read {
                    SendOperation::Read { address, key }
                } else {
                    SendOperation::Write { address, key }
                };
                let (elements, bytes) = (sges(context, count), [context as u8; 3]);
                let pieces = [&bytes[..1], &bytes[1..]];
                let data = if inline { SendData::Inline(&pieces) } else { SendData::Sges(&elements) };
                let request = SendRequest { context, operation, flags: SendFlags::empty(), data };
                let is_full = model.len() == depth as usize;
                let expected = if is_long && !is_read {
                    Err(PostError::TooManySges)
                } else if is_full {
                    Err(PostError::QueueFull)
                } else {
                    Ok(())
                };
                prop_assert_eq!(queue.post(&request, 1024, 1 << 31), expected);
                if expected.is_ok() {
                    model.push_back((context, count, inline));
                }
            } else {
                let popped = queue.pop().map(|wqe| wqe.context);
                prop_assert_eq!(popped, model.pop_front().map(|(context, ..)| context));
            }
            prop_assert!(queue.get(model.len() as u32).is_none());
            for (index, &(context, count, inline)) in (0..).zip(&model) {
                let wqe = queue.get(index).unwrap();
                prop_assert_eq!(wqe.context, context);
                match queue.payload(wqe) {
                    Payload::Sges(found) => {
                        prop_assert!(!inline && found == sges(context, count));
                    }
                    Payload::Inline(found) => prop_assert!(inline && found == [context as u8; 3]),
                }
            }
        }
    }
}

//= R-QP-19
#[test]
fn a_message_longer_than_the_limit_is_refused() {
    let mut queue = SendQueue::try_new(9, 4, 8).unwrap();
    let mut post = |data, limit| {
        let operation = SendOperation::Send;
        queue.post(&SendRequest { context: 0, operation, flags: SendFlags::empty(), data }, 1024, limit)
    };
    let sges = |lengths: [u32; 2]| lengths.map(|length| Sge { address: 0, length, key: 0 });
    let (two, longest) = (sges([3000, 2000]), sges([u32::MAX, 1]));
    let forms = [
        (SendData::Sges(&two[..1]), 3000),
        (SendData::Sges(&two), 5000),
        (SendData::Inline(&[b"12", b"345"]), 5),
    ];
    for (data, length) in forms {
        assert_eq!(post(data, length), Ok(()));
        assert_eq!(post(data, length - 1), Err(PostError::TooLong));
    }
    // The sum of their lengths is 2^32.
    assert_eq!(post(SendData::Sges(&longest), u32::MAX), Err(PostError::TooLong));
}
