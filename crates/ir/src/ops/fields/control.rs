//! The fields of branches and loops: numbers that are usually zero, and regions.

use super::{Bytes, Context, Expected, Field, FieldMut};
use crate::ops::control::{CallMode, Regions};
use crate::pfgb::{self, File};
use std::ops::{Deref, DerefMut};

/// A number that the text form omits if it is zero.
pub(super) struct Count<R>(pub R);

impl<T: Field + Default + PartialEq, R: Deref<Target = T>> Field for Count<R> {
    fn print(&self, cx: Context<'_>, out: &mut String) {
        self.0.print(cx, out);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn encode_key(&self, out: &mut Vec<u8>) {
        self.0.encode_key(out);
    }

    fn is_default(&self, _: Context<'_>) -> bool {
        *self.0 == T::default()
    }
}

impl<T: FieldMut + Default + PartialEq, R: DerefMut<Target = T>> FieldMut for Count<R> {
    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected> {
        self.0.parse(cx, text)
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        self.0.decode(bytes)
    }

    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        self.0.arbitrary(cx, below);
    }

    fn set_default(&mut self, _: Context<'_>) -> bool {
        *self.0 = T::default();
        true
    }
}

impl Field for CallMode {
    fn print(&self, _: Context<'_>, out: &mut String) {
        out.push_str(self.name());
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn is_default(&self, _: Context<'_>) -> bool {
        *self == CallMode::Inline
    }
}

impl FieldMut for CallMode {
    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let names = || CallMode::ALL.map(CallMode::name).join(", ");
        let found = CallMode::ALL.into_iter().find(|mode| mode.name() == text);
        *self = found.ok_or_else(|| format!("one of {}", names()))?;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let [code] = bytes.array()?;
        let mode = CallMode::ALL.get(code as usize);
        *self = *mode.ok_or_else(|| format!("a mode from 0 to 3, found {code}"))?;
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = CallMode::ALL[below(CallMode::ALL.len())];
    }

    fn set_default(&mut self, _: Context<'_>) -> bool {
        *self = CallMode::Inline;
        true
    }
}

/// In the binary form, each region is an embedded file. In the text form, the parser reads regions
/// separately and stores them here.
impl Field for Regions {
    fn print(&self, _: Context<'_>, _: &mut String) {}

    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        for graph in self.iter() {
            let file = File { graph: graph.clone(), ..File::default() };
            // The writer has already checked that the file format can represent the regions.
            let bytes = file.bytes();
            (bytes.len() as u32).encode(out);
            out.extend(bytes);
        }
    }

    /// Appends the key of each graph. A file also has its names, hints and sources.
    fn encode_key(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        for graph in self.iter() {
            let start = out.len();
            0u32.encode(out);
            graph.encode(out);
            let len = (out.len() - start - 4) as u32;
            out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        }
    }

    fn is_default(&self, _: Context<'_>) -> bool {
        true
    }
}

impl FieldMut for Regions {
    fn parse(&mut self, _: Context<'_>, _: &str) -> Result<(), Expected> {
        Err("regions between braces, behind the other attributes".into())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let mut graphs = Vec::new();
        for _ in 0..bytes.count(4)? {
            let len = bytes.count(1)?;
            let inner = bytes.take(len)?;
            let file = pfgb::decode_region(inner, bytes.depth + 1)
                .map_err(|error| format!("a region, found {error}"))?;
            if !file.data.is_empty() {
                return Err("a region without data".into());
            }
            graphs.push(file.graph);
        }
        *self = Regions::new(graphs);
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, _: &mut dyn FnMut(usize) -> usize) {}

    fn set_default(&mut self, _: Context<'_>) -> bool {
        *self = Regions::default();
        true
    }
}
