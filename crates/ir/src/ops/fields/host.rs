//! The field of a call of a custom op: its key, which contains the op's name and version.

use super::{Bytes, Context, Expected, Field, FieldMut};
use crate::ops::host::HostCall;

impl Field for HostCall {
    fn print(&self, _: Context<'_>, out: &mut String) {
        out.push_str(self.key());
    }

    fn encode(&self, out: &mut Vec<u8>) {
        (self.key().len() as u32).encode(out);
        out.extend_from_slice(self.key().as_bytes());
    }
}

impl FieldMut for HostCall {
    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        *self = HostCall::parse(text)?;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let len = bytes.count(1)?;
        *self = HostCall::parse(&crate::pfgb::utf8(bytes.take(len)?)?)?;
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, _: &mut dyn FnMut(usize) -> usize) {}
}
