//! Reads graphs and tensors from files, for all commands.

use girih::{Error, Program, Result, Tensor, io};
use std::path::Path;

/// Reads a program from a file: PFGB if it starts with that magic number, else text.
pub fn program(path: &Path) -> Result<Program> {
    Program::load(path)
}

/// Reads the program's inputs from a file, in the program's order: by name if the file contains all
/// names, else by position.
pub fn inputs(program: &Program, path: Option<&Path>) -> Result<Vec<Tensor>> {
    let wanted = program.inputs();
    let Some(path) = path else {
        return match wanted.as_slice() {
            [] => Ok(Vec::new()),
            some => {
                let list: Vec<String> =
                    some.iter().map(|i| format!("{}: {}", i.name, i.spec)).collect();
                Err(Error::InvalidArgument(format!(
                    "the program takes {} inputs ({}); give a file with them by --inputs",
                    some.len(),
                    list.join(", ")
                )))
            }
        };
    };
    let tensors = io::load(path)?;
    let by_name = |name: &str| tensors.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone());
    if let Some(found) = wanted.iter().map(|input| by_name(&input.name)).collect() {
        return Ok(found);
    }
    if tensors.len() == wanted.len() {
        return Ok(tensors.into_iter().map(|(_, tensor)| tensor).collect());
    }
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|input| by_name(&input.name).is_none())
        .map(|input| input.name.as_str())
        .collect();
    let names: Vec<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    let holds = match names.as_slice() {
        [] => "holds no tensors".to_string(),
        [""] => "holds one tensor without a name".to_string(),
        names => format!("holds {}", names.join(", ")),
    };
    Err(Error::InvalidArgument(format!(
        "the program takes {} inputs; '{}' {holds}, but lacks {}. Give a file that holds each under \
         its name, such as an .npz, or as many tensors as there are inputs",
        wanted.len(),
        path.display(),
        missing.join(", ")
    )))
}

/// Outputs with their names; `output0` and so on for unnamed outputs.
pub fn named_outputs(program: &Program, outputs: Vec<Tensor>) -> Vec<(String, Tensor)> {
    let names = program
        .outputs()
        .into_iter()
        .enumerate()
        .map(|(i, (name, _))| if name.starts_with('%') { format!("output{i}") } else { name });
    names.zip(outputs).collect()
}
