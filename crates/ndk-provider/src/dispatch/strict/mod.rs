// SPDX-License-Identifier: MIT OR Apache-2.0

//! The dispatch tables of objects whose calls are checked: each function checks the call, calls the ordinary function of
//! the type's table, and reports the consumer's mistakes. Without the setting, no object points to these tables.
//!
//! A call above `DISPATCH_LEVEL`, or with an object pointer that is wrong or closed, is refused before the ordinary
//! function is called: `STATUS_INVALID_PARAMETER`, `STATUS_SUCCESS` of a close, 0, or no effect.

mod call;

/// Declares checked functions: the kind of call, the function, the member of the table that it calls, its parameters
/// behind the object. Then what is checked beside the object: other objects, the completion callback, the variable for the
/// new object or another result, the highest IRQL, and a guard.
macro_rules! checked {
    ($Type:ty, $Public:ty; $(
        $kind:ident $name:ident = $member:ident($($argument:ident: $Argument:ty),* $(,)?) -> $Answer:ty
        $(, objects [$($other:ident: $Other:ty),*])?
        $(, completion $completion:ident)?
        $(, out $out:ident)?
        $(, result $result:ident)?
        $(, at_most $limit:ident)?
        $(, guard $guard:path [$($given:expr),*])?
        ;
    )*) => { $(
        pub unsafe extern "efiapi" fn $name(
            object: *mut $Public,
            $($argument: $Argument,)*
        ) -> $Answer {
            #[allow(unused_imports, reason = "only functions with a guard use it")]
            use $crate::dispatch::strict::call::Guard;
            use $crate::dispatch::strict::call::{Answer, Call};
            // SAFETY: the consumer's promise about object pointers; the memory of closed objects is kept.
            let call = unsafe { Call::enter::<$Type>(object, $crate::base::strict::CallKind::$kind) };
            #[allow(unused_mut, reason = "only if there are other objects")]
            let mut valid = call.is_valid();
            // SAFETY: the pointer is an argument of the call: null, or the memory of an object, which the provider keeps after its close
            // while calls are checked.
            $($( valid &= valid && unsafe { call.argument::<$Other>($other) }; )*)?
            $( valid &= call.is_valid() && call.result($out.is_null()); )?
            $( valid &= call.is_valid() && call.result($result.is_null()); )?
            let function = <$Type as $crate::base::object::DispatchTable>::TABLE.$member;
            let (true, Some(function)) = (valid, function) else {
                // SAFETY: the object of the call.
                unsafe { call.refuse(object.cast()) };
                // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call
                // completes.
                $( return unsafe { $crate::dispatch::created_object::refuse($out) }; )?
                #[allow(unreachable_code, reason = "create calls have returned")]
                return <$Answer as Answer>::REFUSED;
            };
            $( call.completion($completion.is_some()); )?
            $( call.at_most(nt::irql::$limit); )?
            // SAFETY: an open object, and what the consumer promises of the arguments.
            $( let guard = unsafe { <$guard>::new(&call, object, $($given),*) }; )?
            // SAFETY: the arguments are those that the consumer passed to the function of this name, with the same contract.
            let answer = unsafe { function(object, $($argument),*) };
            $( <$guard as Guard>::end(guard, &call, answer.status()); )?
            call.leave(answer.status());
            answer
        }
    )* };
}

pub mod adapter;
mod close;
pub mod connector;
pub mod cq;
pub mod endpoints;
pub mod memory;
pub mod pd;
mod posts;
pub mod qp;
pub mod srq;
