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

/// Memory for READs with many elements is taken once, when the first one is posted.
#[test]
fn room_for_many_elements_is_needed_once() {
    let mut queue = SendQueue::try_new(2, 1, 0).unwrap();
    queue.set_wide(3);
    assert_eq!([0, 1, 2, 3, 4].map(|elements| queue.room_for(elements)), [0, 0, 9, 9, 0]);
    assert!(queue.widen(vec![Sge::NONE; 9]).is_empty());
    assert_eq!(queue.room_for(3), 0);
}

#[test]
fn there_is_one_challenge_at_a_time() {
    let mut queue = SendQueue::try_new(1, 1, 0).unwrap();
    assert!(queue.post_challenge());
    assert!(!queue.post_challenge());
}

//= R-QP-34
#[test]
fn a_read_has_no_inline_data() {
    let mut queue = SendQueue::try_new(1, 1, 8).unwrap();
    let operation = SendOperation::Read { address: 0, key: 0 };
    let data = SendData::Inline(&[b"12"]);
    let request = SendRequest { context: 0, operation, flags: SendFlags::empty(), data };
    assert_eq!(queue.post(&request, 1024, 1 << 31), Err(PostError::NotAllowed));
}

#[test]
fn requests_of_both_kinds_that_are_counted_leave_together() {
    let mut queue = SendQueue::try_new(2, 1, 0).unwrap();
    let operation = SendOperation::Read { address: 0, key: 0 };
    let request = SendRequest {
        context: 0,
        operation,
        flags: SendFlags::INVALIDATE_SINK,
        data: SendData::Sges(&[Sge::NONE]),
    };
    queue.post(&request, 1024, 1 << 31).unwrap();
    assert!(queue.post_challenge() && queue.has_local() && queue.has_invalidating());
    assert!(queue.pop().is_some_and(|wqe| wqe.is_read()));
    assert!(queue.has_local() && !queue.has_invalidating());
    assert!(queue.pop().is_some());
    assert!(!queue.has_local());
}
