//! The `girih` command as a function from arguments to output and exit status, so that the binary
//! and `python -m girih` share it.
//!
//! Exit status: 0 for success, 1 for a failure (such as an unreadable file or a graph that fails to
//! run), 2 for invalid arguments.
#![forbid(unsafe_code)]

mod commands;
mod files;
mod info;
mod shard;

use clap::{Parser, Subcommand};
use serde_json::Value;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// Inspects, converts, explains, runs, times and traces graphs in files.
///
/// Graph files are PFGB (.pfgb) or text (.txt, .girih); the content of a file determines its
/// format. Tensors come from and go to .npz, .npy and .safetensors files.
#[derive(Parser)]
#[command(name = "girih", version, arg_required_else_help = true)]
struct Arguments {
    /// Print one JSON value instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the version, processor, devices, caches and the environment variables that are set.
    Info,
    /// Show the graph in a file as text with its statistics, or the contents of a file of tensors.
    Show {
        /// A graph file, or tensors: .npz, .npy or .safetensors.
        file: PathBuf,
        /// Print only the statistics of a graph.
        #[arg(long)]
        stats: bool,
    },
    /// Write a graph in another form, by the suffix of the output.
    #[command(
        long_about = "Write a graph in another form, by the suffix of the output: .pfgb (with \
        the values it holds), .txt or .girih (text, without values), .dot, .svg, .html."
    )]
    Convert {
        /// A graph file.
        input: PathBuf,
        /// The file to write.
        output: PathBuf,
    },
    /// Explain the compilation of a graph: passes, kernels, refused fusions, memory.
    Explain {
        /// A graph file.
        file: PathBuf,
        /// Also print the machine code generated for each kernel.
        #[arg(long)]
        asm: bool,
        /// Print only the kernels, as a C11 file that a C compiler accepts.
        #[arg(long, conflicts_with = "asm")]
        c: bool,
    },
    /// Run a graph on inputs from a file.
    #[command(
        long_about = "Run a graph on inputs from a file. Inputs are found by name (the node's \
        name or number, %0), else taken in order if the file holds as many as the graph takes. \
        Outputs are printed, or written under their names (output0, output1, … without)."
    )]
    Run {
        /// A graph file.
        file: PathBuf,
        /// Inputs: .npz, .npy or .safetensors.
        #[arg(long, short)]
        inputs: Option<PathBuf>,
        /// The file for the outputs: .npz, .npy or .safetensors.
        #[arg(long, short)]
        outputs: Option<PathBuf>,
    },
    /// Time a graph: the first run, which compiles, and then other runs.
    Bench {
        /// A graph file.
        file: PathBuf,
        /// Inputs: .npz, .npy or .safetensors; without a file, all inputs are ones.
        #[arg(long, short)]
        inputs: Option<PathBuf>,
        /// The number of timed runs.
        #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        runs: u32,
    },
    /// Run a graph and write the times of its kernels, copies and compilations, for a trace viewer.
    #[command(
        long_about = "Run a graph and write when its kernels, copies and compilations ran, in \
        Chrome's trace event format: open the file in Perfetto or in chrome://tracing. With a name \
        that ends in .html it is a page for any browser. Without -o a table is printed only."
    )]
    Trace {
        /// A graph file.
        file: PathBuf,
        /// Inputs: .npz, .npy or .safetensors; without a file, all inputs are ones.
        #[arg(long, short)]
        inputs: Option<PathBuf>,
        /// The trace to write, .json or .html.
        #[arg(long, short)]
        output: Option<PathBuf>,
        /// The number of traced runs; the first run compiles.
        #[arg(long, short = 'n', default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
        runs: u32,
    },
    /// Plan a graph on a mesh of processors: shards, collectives and their bytes.
    #[command(
        long_about = "Plan a graph on a mesh of processors, which need not exist: the shard of each \
        argument and output, the collectives between the processors, and their bytes. Arguments \
        without a spec are whole on every processor. A spec has an entry for each dimension: the \
        axes of the mesh that cut it, or *."
    )]
    Shard {
        /// A graph file.
        file: PathBuf,
        /// The axes of the mesh with their sizes, such as dp=2,tp=4.
        #[arg(long, short)]
        mesh: String,
        /// The spec of an input or weight, such as 'x=<dp, *>'; may be given several times.
        #[arg(long, short)]
        spec: Vec<String>,
    },
    /// Show or clear the compiled programs on disk; without a subcommand, show their statistics.
    Cache {
        #[command(subcommand)]
        action: Option<CacheAction>,
    },
}

#[derive(Subcommand, Clone, Copy)]
enum CacheAction {
    /// Show the number, size and directory of the programs.
    Stats,
    /// List the programs, the most recently used first.
    List,
    /// Remove all programs.
    Clear,
}

/// The output of a command: as text, and as a value for `--json`.
struct Answer {
    text: String,
    json: Value,
}

/// Runs the command of these arguments (without the program's name) and returns its exit status.
/// Writes only to `out` and `err`.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let args = std::iter::once(OsString::from("girih")).chain(args);
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            let help = !error.use_stderr();
            let written = match help {
                true => write!(out, "{error}"),
                false => write!(err, "{error}"),
            };
            return if help && written.is_ok() { 0 } else { 2 };
        }
    };
    let answer = match arguments.command {
        Command::Info => info::info(),
        Command::Show { file, stats } => commands::show(&file, stats),
        Command::Convert { input, output } => commands::convert(&input, &output),
        Command::Explain { file, asm, c } => commands::explain(&file, asm, c),
        Command::Run { file, inputs, outputs } => {
            commands::run(&file, inputs.as_deref(), outputs.as_deref())
        }
        Command::Trace { file, inputs, output, runs } => {
            commands::trace(&file, inputs.as_deref(), output.as_deref(), runs)
        }
        Command::Bench { file, inputs, runs } => commands::bench(&file, inputs.as_deref(), runs),
        Command::Shard { file, mesh, spec } => shard::shard(&file, &mesh, &spec),
        Command::Cache { action } => info::cache(action.unwrap_or(CacheAction::Stats)),
    };
    let written = match answer {
        Ok(answer) if arguments.json => writeln!(out, "{}", answer.json),
        Ok(answer) => writeln!(out, "{}", answer.text.trim_end()),
        Err(error) => {
            let _ = match arguments.json {
                true => writeln!(err, "{}", serde_json::json!({"error": error.to_string()})),
                false => writeln!(err, "error: {error}"),
            };
            return 1;
        }
    };
    // A reader may close the pipe early, which is not a failure.
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => 1,
        _ => 0,
    }
}
