//! What the engine does not say yet, answered so that nothing is missed.

use crate::provider::Engine;
use kernel::RawSpinLock;
use roce::{Arc, ConnId, Qp};

/// Overruled by the engine's own methods of these names.
pub trait EngineExt {
    fn has_event(&self) -> bool;
    fn wants_transmit(&self) -> bool;
    fn undefer(&self, qp: &Arc<Qp<RawSpinLock>>);
    fn set_context(&self, conn: ConnId, context: u64);
}

impl EngineExt for Engine {
    fn has_event(&self) -> bool {
        true
    }

    fn wants_transmit(&self) -> bool {
        true
    }

    fn undefer(&self, _qp: &Arc<Qp<RawSpinLock>>) {}

    fn set_context(&self, _conn: ConnId, _context: u64) {}
}
