//! The text of a plan: a line for each value with its layout, and one for each transform.

use super::GraphLayouts;
use std::fmt;

impl fmt::Display for GraphLayouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (id, layout)) in self.layouts.iter().enumerate() {
            let line = if at > 0 { "\n" } else { "" };
            write!(f, "{line}{id}: {layout}")?;
        }
        for transform in &self.operands {
            let (value, to, kind) = (transform.value, &transform.to, transform.kind);
            write!(f, "\n{value} to {to}: {kind}, {} B", transform.cost.bytes_moved)?;
        }
        for result in &self.results {
            let (value, spec) = (result.value, &result.spec);
            write!(f, "\n{value} from {spec}")?;
            if let Some(layout) = self.layouts.get(&value) {
                write!(f, " to {layout}")?;
            }
            write!(f, ": {} B", result.cost.bytes_moved)?;
        }
        Ok(())
    }
}
