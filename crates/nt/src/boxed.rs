//! The fallible way to a `Box`.

use alloc::alloc::alloc;
use alloc::boxed::Box;
use core::alloc::Layout;
use core::mem::align_of;

/// Largest alignment the image's global allocator honours: what pool gives.
const POOL_ALIGNMENT: usize = 16;

/// Moves `value` into pool, or drops it when pool has run dry.
///
/// `None` is `STATUS_INSUFFICIENT_RESOURCES` to the caller above. IRQL <= `DISPATCH_LEVEL`.
pub fn try_box<T>(value: T) -> Option<Box<T>> {
    try_box_or_return(value).ok()
}

/// Moves `value` into pool, or gives it back when pool has run dry.
pub fn try_box_or_return<T>(value: T) -> Result<Box<T>, T> {
    const { assert!(align_of::<T>() <= POOL_ALIGNMENT) };
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        // A zero-sized box takes nothing from pool.
        return Ok(Box::new(value));
    }
    // SAFETY: the layout's size is not zero (checked above).
    let raw = unsafe { alloc(layout) }.cast::<T>();
    if raw.is_null() {
        return Err(value);
    }
    // SAFETY: `raw` is fresh, aligned and large enough for a `T`, and nobody else knows it.
    unsafe { raw.write(value) };
    // SAFETY: `raw` came from the global allocator with the layout of `T` and now holds a `T`.
    Ok(unsafe { Box::from_raw(raw) })
}
