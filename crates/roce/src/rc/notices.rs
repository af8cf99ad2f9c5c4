//! Congestion of one queue pair: notifications to the peer and from it, and frames that wait for their time.
//!
//! Data is paced, its own and what the peer READs; acknowledgements are not.

use lock_api::RawMutex;

use super::{Env, NOTIFICATION_CLASS, Rc, Unsent};
use crate::region::AccessError;
use roce_wire::{Ext, Headers, Opcode, Psn};

impl Rc {
    /// A frame of the peer's requests or answers came with a mark, whether or not it was of use.
    #[inline(never)]
    pub(super) fn handle_mark<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        //= rocev2 §14
        env.engine.stats.rx_congestion_marked.inc();
        // What the frame has brought to its end slows nobody down any more.
        if self.state.serves() {
            self.notifier.marked(env.now, &env.engine.config.congestion);
        }
    }

    /// The peer tells that frames of this queue pair came with marks.
    #[inline(never)]
    pub(super) fn handle_notification<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        let stats = &env.engine.stats;
        stats.rx_cnp.inc();
        if self.rate.notified(env.now, &env.engine.config.congestion) {
            stats.rate_reductions.inc();
        }
    }

    /// Writes the notification that the peer is owed.
    #[inline(never)]
    pub(super) fn transmit_notification<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
    ) -> Result<usize, Unsent> {
        self.notifier.paid();
        //= rocev2 §14
        let headers = Headers {
            opcode: Opcode::CNP,
            solicited: false,
            ack_req: false,
            psn: Psn::new(0),
            ext: Ext::Cnp,
        };
        let link = self.link.as_ref();
        let built = Self::build(link, env, slot, &headers, 0, |_| Ok::<_, AccessError>(()))?;
        let len = built.map_err(|_| Unsent::Broken)?;
        if let Some(link) = link
            && let Some(frame) = slot.get_mut(..len)
        {
            link.template.set_traffic_class(frame, NOTIFICATION_CLASS);
        }
        env.engine.stats.tx_cnp.inc();
        Ok(len)
    }

    /// Writes the next frame if the rate allows it, or one that needs no leave.
    #[inline(never)]
    pub(super) fn transmit_paced<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
    ) -> Result<usize, Unsent> {
        let reaction = &env.engine.config.congestion.reaction;
        if self.rate.may_send(env.now, reaction) {
            let len = self.transmit_next(env, slot)?;
            self.rate.sent(env.now, len, reaction);
            return Ok(len);
        }
        let serving = self.responder.is_serving();
        if serving || self.wants_to_request() {
            self.rate.wait();
        }
        // An acknowledgement may not overtake responses.
        if serving { Err(Unsent::Idle) } else { self.transmit_response(env, slot) }
    }
}
