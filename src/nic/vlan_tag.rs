// SPDX-License-Identifier: MIT OR Apache-2.0

//! 802.1Q tags in frames: inserted before a frame is sent, removed before it is processed. (IEEE 802.1Q §9)

/// Length of a tag in bytes.
pub const TAG_LEN: usize = 4;
/// Length of the MAC addresses in bytes. The tag follows them.
const ADDRESSES: usize = 12;
/// The ethertype of a tag.
const TAG_PROTOCOL: [u8; 2] = [0x81, 0x00];
/// Length of an Ethernet header with a tag, in bytes.
const HEADER: usize = 18;

/// Tag control information: priority (bits 15 to 13), drop eligible indicator (12), VLAN ID (11 to 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u16);

impl Tag {
    /// Returns a tag with the low 3 bits of `priority` and the low 12 bits of `id`.
    pub const fn new(priority: u16, id: u16) -> Self {
        Self(priority.wrapping_shl(13) | id & 0xFFF)
    }

    pub const fn priority(self) -> u16 {
        self.0.wrapping_shr(13)
    }

    /// Returns the VLAN ID; 0 for a priority tag.
    pub const fn id(self) -> u16 {
        self.0 & 0xFFF
    }

    /// Returns the tag of a frame; `None` if it has none.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let [.., first, second, high, low, _, _] = *frame.first_chunk::<HEADER>()?;
        ([first, second] == TAG_PROTOCOL).then_some(Self(u16::from_be_bytes([high, low])))
    }
}

/// Removes the tag of a frame. Returns the untagged frame, which begins [`TAG_LEN`] bytes later, and the tag.
pub fn remove(frame: &mut [u8]) -> (&mut [u8], Option<Tag>) {
    let Some(tag) = Tag::of(frame) else { return (frame, None) };
    let Some(&addresses) = frame.first_chunk::<ADDRESSES>() else { return (frame, None) };
    let untagged = frame.get_mut(TAG_LEN..).unwrap_or_default();
    if let Some(to) = untagged.first_chunk_mut() {
        *to = addresses;
    }
    (untagged, Some(tag))
}

/// Inserts a tag into the frame that begins [`TAG_LEN`] bytes after the start of `slot`. The tagged frame begins at the start.
pub fn insert(slot: &mut [u8], tag: Tag) {
    let Some(&addresses) = slot.get(TAG_LEN..).and_then(<[u8]>::first_chunk::<ADDRESSES>) else { return };
    if let Some(header) = slot.first_chunk_mut::<{ ADDRESSES + TAG_LEN }>() {
        let [to @ .., first, second, high, low] = header;
        *to = addresses;
        [*first, *second] = TAG_PROTOCOL;
        [*high, *low] = tag.0.to_be_bytes();
    }
}

/// Sets the VLAN ID in the tag of a tagged frame.
pub fn set_id(frame: &mut [u8], id: u16) {
    if let Some(header) = frame.first_chunk_mut::<{ ADDRESSES + TAG_LEN }>() {
        let [.., high, low] = header;
        let [id_high, id_low] = (id & 0xFFF).to_be_bytes();
        *high = *high & 0xF0 | id_high;
        *low = id_low;
    }
}
