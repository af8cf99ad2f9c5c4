// SPDX-License-Identifier: MIT OR Apache-2.0

//! The layer below the objects: object lifetime, tables, and the state that objects share. Names no object type. A folder uses
//! those below it in this table:
//!
//! | module | contents |
//! | --- | --- |
//! | `calls` | calls that may pend |
//! | `state` | the state that all objects of one provider share |
//! | `object` | header, references, close, callbacks, registry |
//! | `strict` | the settings for authors of consumers |
//! | `environment` | the trait of what the provider needs from its driver |
//! | `limits`, `version`, `status`, `address` | one table each |

pub mod address;
pub mod calls;
pub mod environment;
#[allow(unsafe_code, reason = "shares static structures that contain pointers")]
pub mod limits;
#[allow(unsafe_code, reason = "objects with references, pointers to them, and the consumer's functions")]
pub mod object;
pub mod state;
pub mod status;
pub mod strict;
pub mod version;
