//! The text that identifies a call of a custom op in cache keys and files.

use super::{HostBatching, HostCall, Level, registered};
use crate::{DType, TensorSpec};

impl HostCall {
    pub(super) fn keyed(mut self) -> HostCall {
        let identity = self.op.identity();
        let specs: Vec<String> = self.results.iter().map(spec_text).collect();
        let level = |level: &Level| {
            let marks = level.batched.iter().map(|b| if *b { '1' } else { '0' });
            format!("{}x{}", level.size, marks.collect::<String>())
        };
        let levels: Vec<String> = self.levels.iter().map(level).collect();
        self.key = format!(
            "{}@{}!{identity};{};{};{};{}",
            self.op.name(),
            self.op.version(),
            self.batching.name(),
            if self.effect { "effect" } else { "pure" },
            specs.join("|"),
            levels.join("|"),
        );
        if !self.op.settings().is_empty() {
            self.key.push(';');
            self.key.push_str(self.op.settings());
        }
        self
    }

    /// Parses a call from the text of its key.
    ///
    /// Errors: what was expected; the name, if it is not registered.
    pub fn parse(text: &str) -> Result<HostCall, String> {
        let wrong = || format!("a call of a registered op, found '{text}'");
        let (id, batching, effect, specs, levels, settings) =
            match text.split(';').collect::<Vec<_>>()[..] {
                [a, b, c, d, e] => (a, b, c, d, e, ""),
                [a, b, c, d, e, settings] => (a, b, c, d, e, settings),
                _ => return Err(wrong()),
            };
        let (name, rest) = id.rsplit_once('@').ok_or_else(wrong)?;
        let (version, identity) = rest.split_once('!').ok_or_else(wrong)?;
        let version: u32 = version.parse().map_err(|_| wrong())?;
        // The identity that distinguishes unnamed callbacks is only valid in the process that wrote
        // it.
        let op = registered(name, version).ok_or_else(|| match identity {
            "0" => format!(
                "a registered op, found '{name}' version {version}, which is not registered; \
                 register the op (in Python, import the module that defines it) and try again"
            ),
            _ => format!(
                "a registered op, found '{name}' version {version} of the process that wrote it; import \
                 the module that defines the custom op and try again (a callback that is no custom op \
                 cannot be loaded: define it as one)"
            ),
        })?;
        let op = op.with_settings(settings)?.unwrap_or(op);
        let batching = HostBatching::ALL.into_iter().find(|b| b.name() == batching);
        let effect = ["pure", "effect"].iter().position(|e| *e == effect).ok_or_else(wrong)? == 1;
        let specs = specs.split('|').filter(|s| !s.is_empty());
        let results = specs.map(parse_spec).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
        let level = |text: &str| {
            let (size, marks) = text.split_once('x')?;
            let size: usize = size.parse().ok()?;
            Some(Level { size: size.into(), batched: marks.chars().map(|c| c == '1').collect() })
        };
        let levels = levels.split('|').filter(|s| !s.is_empty()).map(level);
        let levels = levels.collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
        if results.is_empty() || results.len() > u8::MAX as usize {
            return Err(wrong());
        }
        let call = HostCall::new(op, results, batching.ok_or_else(wrong)?, effect);
        Ok(HostCall { levels, ..call }.keyed())
    }
}

fn spec_text(spec: &TensorSpec) -> String {
    let sizes: Vec<String> = spec.shape.dims().map(|d| d.to_string()).collect();
    format!("{}:{}", spec.dtype.name(), sizes.join("x"))
}

fn parse_spec(text: &str) -> Option<TensorSpec> {
    let (dtype, sizes) = text.split_once(':')?;
    let sizes = sizes.split('x').filter(|s| !s.is_empty()).map(|s| s.parse().ok());
    let sizes: Vec<usize> = sizes.collect::<Option<_>>()?;
    let spec =
        TensorSpec::new(sizes.into_iter().collect::<crate::Shape>(), DType::parse(dtype).ok()?);
    spec.shape.check("custom", spec.dtype).ok().map(|()| spec)
}

impl serde::Serialize for HostCall {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.key)
    }
}

impl<'de> serde::Deserialize<'de> for HostCall {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<HostCall, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = |e| serde::de::Error::custom(format!("expected {e}"));
        HostCall::parse(&text).map_err(expected)
    }
}
