//! Tests of each command on files: output, written files, and failures.

use girih::{DType, Program, Tensor, io};
use serde_json::Value;
use std::path::PathBuf;

/// A temporary folder, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("girih-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Exit status, output, errors.
fn girih(args: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = girih_cli::run(args.iter().map(Into::into), &mut out, &mut err);
    (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[track_caller]
fn ok(args: &[&str]) -> String {
    let (status, out, err) = girih(args);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    out
}

#[track_caller]
fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(&[args, &["--json"]].concat())).unwrap()
}

/// `relu(x @ w + 1)`, where the program holds `w` and takes `x`.
fn model(folder: &Folder) -> String {
    let w =
        Tensor::from_slice(&[1.0f32, -1.0, 2.0, 0.5], [2, 2]).unwrap().into_parameter().unwrap();
    let x = Tensor::from_slice(&[0.0f32; 6], [3, 2]).unwrap();
    let y = x.matmul(&w).unwrap().add(1.0).unwrap().relu().unwrap();
    let mut program = Program::capture(&[&y], &[&x]).unwrap();
    let (input, output) = (program.inputs()[0].id, program.graph().outputs()[0]);
    program.graph_mut().set_name(input, "x");
    program.graph_mut().set_name(output, "y");
    let path = folder.at("model.pfgb");
    program.save(&path).unwrap();
    path
}

#[test]
fn info_and_cache_report_the_machine_and_the_disabled_disk_cache() {
    let info = json(&["info"]);
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(info["devices"][0]["name"], "cpu");
    assert!(["baseline", "avx2", "avx512"].contains(&info["isa"].as_str().unwrap()));
    assert!(info["threads"].as_u64() > Some(0));
    assert_eq!(info["environment"]["GIRIH_CACHE"], "0");
    assert!(ok(&["info"]).contains("\nset        GIRIH_CACHE=0"), "{}", ok(&["info"]));
    assert!(ok(&["info"]).starts_with("girih 0."));
    assert!(info["machine"]["l2_bytes"].as_u64() >= info["machine"]["l1_bytes"].as_u64());
    assert_eq!(info["machine"]["kept_in"], "nowhere");
    assert!(ok(&["info"]).contains(&format!("chunk_ns={}", info["tuning"]["chunk_ns"])));
    // Tests run without the disk cache.
    assert_eq!(ok(&["cache"]), "off: GIRIH_CACHE=0\n");
    assert!(ok(&["info"]).contains("cache      off: GIRIH_CACHE=0"));
    assert_eq!(json(&["cache", "clear"])["off"], "GIRIH_CACHE=0");
}

#[test]
fn the_cache_command_reports_the_disk_cache() {
    let folder = Folder::new("cache");
    let model = model(&folder);
    let x = Tensor::from_slice(&[1.0f32; 6], [3, 2]).unwrap();
    io::save(folder.at("x.npy"), &[(String::new(), x)]).unwrap();
    let process = |args: &[&str]| -> Value {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_girih"))
            .args(args)
            .arg("--json")
            .env("GIRIH_CACHE", "1")
            .env("GIRIH_CACHE_MIN_COMPILE_MS", "0")
            .env("GIRIH_CACHE_DIR", folder.at("kept"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(process(&["cache"])["programs"], 0);
    process(&["run", &model, "-i", &folder.at("x.npy")]);
    let listed = process(&["cache", "list"]);
    let entries = listed["entries"].as_array().unwrap();
    assert!(!entries.is_empty() && listed["programs"] == entries.len(), "{listed}");
    assert!(entries.iter().all(|e| e["bytes"].as_u64() > Some(0)), "{listed}");
    assert_eq!(process(&["info"])["cache"]["bytes"], listed["bytes"]);
    let machine = &process(&["info"])["machine"];
    assert_eq!(machine["kept_in"], folder.at("kept/calibration"));
    // Latencies are measured only on machines with several processors, and only by the first
    // process.
    if std::path::Path::new(&folder.at("kept/calibration")).exists() {
        assert_eq!(process(&["info"])["machine"], *machine);
    }
    assert_eq!(process(&["cache", "clear"])["removed"], entries.len());
    assert_eq!(process(&["cache", "stats"])["programs"], 0);
}

#[test]
fn complex_and_large_unsigned_values_are_printed_exactly() {
    let folder = Folder::new("dtypes");
    let complex = Tensor::from_slice(&[1.5f64, -2.0], [2]).unwrap().astype(DType::C128).unwrap();
    let large = Tensor::from_slice(&[u64::MAX, 0], [2]).unwrap();
    for (x, expected) in [
        (complex, serde_json::json!([[-2.0, 0.0], [1.5, 0.0]])),
        (large, serde_json::json!([0, u64::MAX])),
    ] {
        let x = Tensor::from_bytes(&x.spec(), x.to_bytes().unwrap()).unwrap();
        let program = Program::capture(&[&x.flip(..).unwrap()], &[&x]).unwrap();
        let (model, from) = (folder.at("model.pfgb"), folder.at("x.npy"));
        program.save(&model).unwrap();
        io::save(&from, &[(String::new(), x)]).unwrap();
        assert_eq!(json(&["run", &model, "-i", &from])["outputs"][0]["values"], expected);
    }
}

#[test]
fn show_prints_text_and_statistics() {
    let folder = Folder::new("show");
    let model = model(&folder);
    let text = ok(&["show", &model]);
    assert!(text.contains("= matmul(%0, %1) -> [3, 2]"), "{text}");
    assert!(
        text.contains("inputs     x: f32[3, 2]") && text.contains("held       16 bytes"),
        "{text}"
    );
    let stats = json(&["show", "--stats", &model]);
    assert_eq!((&stats["num_ops"], &stats["outputs"][0]["name"]), (&3.into(), &"y".into()));
    assert!(stats.get("text").is_none() && json(&["show", &model]).get("text").is_some());
}

#[test]
fn show_says_what_files_of_tensors_hold() {
    let folder = Folder::new("tensors");
    let w = Tensor::from_slice(&[1.0f32, -1.0, 2.0, 0.5], [2, 2]).unwrap();
    let b = Tensor::from_slice(&[1i64], []).unwrap();
    let named = [("layer.weight".to_string(), w.clone()), ("b".to_string(), b)];
    for name in ["a.npz", "a.safetensors"] {
        io::save(folder.at(name), &named).unwrap();
        let text = ok(&["show", &folder.at(name)]);
        assert!(
            text.contains("layer.weight  float32[2, 2]\n")
                || text.contains("layer.weight  f32[2, 2]\n"),
            "{text}"
        );
        assert!(text.ends_with("2 tensors, 24 bytes\n"), "{text}");
        let shown = json(&["show", &folder.at(name)]);
        let weight =
            shown["tensors"].as_array().unwrap().iter().find(|t| t["name"] == "layer.weight");
        assert_eq!(weight.unwrap()["shape"], serde_json::json!([2, 2]));
    }
    io::save(folder.at("a.npy"), &[(String::new(), w)]).unwrap();
    assert_eq!(ok(&["show", &folder.at("a.npy")]), "f32[2, 2]\n1 tensor, 16 bytes\n");
    io::save(folder.at("none.npz"), &io::Tensors::new()).unwrap();
    assert_eq!(ok(&["show", &folder.at("none.npz")]), "0 tensors, 0 bytes\n");
    std::fs::write(folder.at("bad.npz"), b"PK").unwrap();
    assert_eq!(girih(&["show", &folder.at("bad.npz")]).0, 1);
}

#[test]
fn missing_inputs_are_reported_for_files_without_names() {
    let folder = Folder::new("lacks");
    let (a, b) =
        (Tensor::from_slice(&[1.0f32], [1]).unwrap(), Tensor::from_slice(&[2.0f32], [1]).unwrap());
    let path = folder.at("model.pfgb");
    Program::capture(&[&a.add(&b).unwrap()], &[&a, &b]).unwrap().save(&path).unwrap();
    let error = |file: &str| {
        let (status, _, error) = girih(&["run", &path, "-i", &folder.at(file)]);
        assert_eq!(status, 1);
        error
    };
    io::save(folder.at("in.npy"), &[(String::new(), a.clone())]).unwrap();
    let said = error("in.npy");
    assert!(said.contains("takes 2 inputs"), "{said}");
    assert!(said.contains("in.npy' holds one tensor without a name, but lacks %0, %1"), "{said}");
    io::save(folder.at("none.npz"), &io::Tensors::new()).unwrap();
    assert!(error("none.npz").contains("holds no tensors, but lacks"), "{}", error("none.npz"));
    io::save(folder.at("one.npz"), &[("x".to_string(), a)]).unwrap();
    assert!(error("one.npz").contains("holds x, but lacks"), "{}", error("one.npz"));
}

#[test]
fn programs_for_any_size_are_shown_explained_run_and_timed() {
    let folder = Folder::new("symbolic");
    let path = folder.at("model.txt");
    let text = "Graph:\n  sizes: [batch=4 in 2..=8]\n  %0 = input([batch, 2], f32) {name=\"x\"}\n  \
                %1 = neg(%0) -> [batch, 2]\n  outputs: [negated=%1]\n";
    std::fs::write(&path, text).unwrap();
    let shown = json(&["show", &path]);
    assert_eq!(shown["inputs"][0]["shape"], serde_json::json!(["batch", 2]));
    assert_eq!(shown["outputs"][0]["name"], "negated");
    assert!(ok(&["explain", &path]).contains("neg"));
    ok(&["bench", &path, "-n", "1"]);
    let pfgb = folder.at("model.pfgb");
    ok(&["convert", &path, &pfgb]);
    for (rows, status) in [(1, 1), (2, 0), (8, 0), (9, 1)] {
        let x = Tensor::ones([rows, 2], DType::F32).unwrap();
        io::save(folder.at("x.npz"), &[("x".to_string(), x)]).unwrap();
        let (found, out, error) = girih(&["run", &pfgb, "-i", &folder.at("x.npz")]);
        assert_eq!(found, status, "{error}");
        assert!(
            status == 1 && error.contains("with batch in 2..=8") || out.contains("negated"),
            "{error}"
        );
    }
}

#[test]
fn convert_writes_every_form_and_pfgb_comes_back() {
    let folder = Folder::new("convert");
    let model = model(&folder);
    for (name, start) in [
        ("a.txt", "Graph:"),
        ("a.dot", "digraph"),
        ("a.svg", "<svg"),
        ("a.html", "<!doctype html>"),
    ] {
        ok(&["convert", &model, &folder.at(name)]);
        assert!(std::fs::read_to_string(folder.at(name)).unwrap().starts_with(start), "{name}");
    }
    // The other forms have no room for the 16 bytes of w.
    let text = ok(&["convert", &model, &folder.at("a.txt")]);
    assert!(text.contains("without the 16 bytes of weights"), "{text}");
    assert_eq!(json(&["convert", &model, &folder.at("a.dot")])["dropped_bytes"], 16);
    assert_eq!(json(&["convert", &model, &folder.at("c.pfgb")])["dropped_bytes"], 0);
    ok(&["convert", &folder.at("a.txt"), &folder.at("b.pfgb")]);
    assert_eq!(json(&["show", &folder.at("b.pfgb")])["text"], json(&["show", &model])["text"]);
    ok(&["convert", &model, &folder.at("c.pfgb")]);
    assert_eq!(std::fs::read(folder.at("c.pfgb")).unwrap(), std::fs::read(&model).unwrap());
    let (status, _, err) = girih(&["convert", &model, &folder.at("a.gif")]);
    assert!(status == 1 && err.contains(".pfgb, .txt"), "{err}");
}

#[test]
fn trace_writes_a_span_for_each_kernel() {
    let folder = Folder::new("trace");
    let model = model(&folder);
    let to = folder.at("trace.json");
    let answer = json(&["trace", &model, "-n", "4", "-o", &to]);
    let launches = |row: &&serde_json::Value| row["kind"] == "launch";
    let total: u64 = answer["totals"]
        .as_array()
        .unwrap()
        .iter()
        .filter(launches)
        .map(|row| row["calls"].as_u64().unwrap())
        .sum();
    assert!(total >= 4 && total.is_multiple_of(4), "{answer}");
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(&to).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let spans: Vec<_> = events.iter().filter(|event| event["cat"] == "launch").collect();
    assert_eq!(spans.len() as u64, total);
    for span in &spans {
        // The default stream of the test's thread, whatever its number.
        assert!(span["ph"] == "X" && span["tid"] == spans[0]["tid"], "one stream: {span}");
        assert!(span["ts"].as_f64().unwrap() >= 0.0 && span["dur"].as_f64().unwrap() > 0.0);
    }
    assert!(ok(&["trace", &model]).contains("mean us"));
    let (status, _, err) = girih(&["trace", &model, "-o", &folder.at("none/t.json")]);
    assert!(status == 1 && err.contains("t.json"), "{err}");
}

#[test]
fn run_finds_inputs_by_name_or_place_and_writes_outputs() {
    let folder = Folder::new("run");
    let model = model(&folder);
    let x = Tensor::from_slice(&[1.0f32, 2.0, 0.0, 0.0, -3.0, 1.0], [3, 2]).unwrap();
    let expected = [6.0f32, 1.0, 1.0, 1.0, 0.0, 4.5];
    let other = Tensor::zeros([1], DType::I8).unwrap();
    io::save(folder.at("x.npz"), &[("other", &other), ("x", &x)]).unwrap();
    io::save(folder.at("x.npy"), &[(String::new(), x)]).unwrap();
    for from in ["x.npz", "x.npy"] {
        let result = json(&["run", &model, "--inputs", &folder.at(from)]);
        let values: Vec<f32> =
            serde_json::from_value(result["outputs"][0]["values"].clone()).unwrap();
        assert_eq!(values, expected);
        ok(&["run", &model, "-i", &folder.at(from), "-o", &folder.at("y.safetensors")]);
        let y = io::load(folder.at("y.safetensors")).unwrap();
        assert_eq!((y[0].0.as_str(), y[0].1.to_vec::<f32>().unwrap()), ("y", expected.to_vec()));
    }
    assert!(ok(&["run", &model, "-i", &folder.at("x.npy")]).contains("4.5"));
    let (status, _, err) = girih(&["run", &model]);
    assert!(status == 1 && err.contains("takes 1 inputs (x: f32[3, 2])"), "{err}");
    let wrong = Tensor::zeros([2, 2], DType::F32).unwrap();
    io::save(folder.at("w.npy"), &[(String::new(), wrong)]).unwrap();
    let (status, _, err) = girih(&["run", &model, "-i", &folder.at("w.npy")]);
    assert!(status == 1 && err.contains("f32[3, 2], got f32[2, 2]"), "{err}");
}

#[test]
fn explain_and_bench_compile_and_run() {
    let folder = Folder::new("bench");
    let model = model(&folder);
    let explained = json(&["explain", &model]);
    assert_eq!(explained["kernels"].as_array().unwrap().len(), 1, "{explained}");
    assert!(ok(&["explain", &model]).contains("fused_matmul"));
    let kernel = &explained["kernels"][0];
    assert!(kernel.get("assembly").is_none(), "machine code is shown to those who ask for it");
    let assembly = &json(&["explain", &model, "--asm"])["kernels"][0]["assembly"];
    let text = ok(&["explain", &model, "--asm"]);
    match assembly.as_array().unwrap().as_slice() {
        [] => assert!(text.contains("no machine code of its own"), "{text}"),
        [first, ..] => {
            let first = first.as_str().unwrap().lines().next().unwrap();
            assert!(text.contains("machine code 0: ") && text.contains(first), "{text}");
        }
    }
    let bench = json(&["bench", &model, "-n", "3"]);
    assert!(bench["median_ms"].as_f64().unwrap() > 0.0 && bench["runs"] == 3);
}

#[test]
fn kernels_are_printed_as_c_that_a_compiler_accepts() {
    let folder = Folder::new("c");
    let model = model(&folder);
    let text = ok(&["explain", "--c", &model]);
    assert!(text.contains("void fused_matmul") && text.contains("void program("), "{text}");
    assert_eq!(json(&["explain", &model, "--c"])["c"].as_str().unwrap().trim(), text.trim());
    let source = folder.at("kernels.c");
    std::fs::write(&source, text).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let compiled = std::process::Command::new(&compiler)
        .args(["-std=c11", "-pedantic-errors", "-c", &source, "-o", &folder.at("kernels.o")])
        .output()
        .unwrap_or_else(|e| panic!("this test needs the C compiler {compiler} ($CC): {e}"));
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success() && errors.is_empty(), "{errors}");
    let (status, _, err) = girih(&["explain", &model, "--c", "--asm"]);
    assert!(status == 2 && err.contains("cannot be used with"), "{err}");
}

#[test]
fn failures_exit_with_1_and_usage_errors_with_2() {
    let folder = Folder::new("failures");
    let bad = folder.at("bad.txt");
    std::fs::write(&bad, "Graph:\n  %0 = inptu([2], f32)\n").unwrap();
    let (status, out, err) = girih(&["show", &bad]);
    assert_eq!((status, out.as_str()), (1, ""));
    assert!(err.contains("line 2, column 8") && err.contains("did you mean input?"), "{err}");
    let (status, _, err) = girih(&["show", &folder.at("missing.pfgb"), "--json"]);
    assert_eq!(status, 1);
    assert!(serde_json::from_str::<Value>(&err).unwrap()["error"].is_string());
    std::fs::write(&bad, b"PFGB\x01\0\0\0").unwrap();
    assert!(girih(&["show", &bad]).2.contains("PFGB"));
    for usage in [&["frobnicate"][..], &["show"], &["bench", "x", "-n", "0"], &[], &["cache", "x"]]
    {
        let (status, out, err) = girih(usage);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        assert!(err.contains("Usage") || err.contains("--help"), "{err}");
    }
    assert!(ok(&["--help"]).contains("Usage") && ok(&["run", "--help"]).contains("--inputs"));
    assert!(ok(&["--version"]).starts_with("girih 0."));
}

#[test]
fn a_graph_is_planned_on_a_mesh_that_does_not_exist() {
    let folder = Folder::new("shard");
    let model = model(&folder);
    let w = json(&["show", &model])["text"].as_str().unwrap().to_string();
    assert!(w.contains("parameter"), "{w}");
    let program = Program::load(&model).unwrap();
    let weight = program.parameters()[0].0.clone();
    // Data parallel: nothing moves. Five rows over two processors are not needed to divide.
    let plan = json(&["shard", &model, "--mesh", "dp=2", "--spec", "x=<dp, *>"]);
    assert_eq!((&plan["bytes"], &plan["processors"]), (&0.into(), &2.into()));
    assert_eq!(plan["outputs"][0]["spec"], "<dp, *>");
    assert_eq!(plan["outputs"][0]["shard_bytes"], 2 * 2 * 4);
    // Tensor parallel along the contracted dimension: one all-reduce of y, 2 (n - 1) N bytes.
    let spec = format!("{weight}=<tp, *>");
    let args = ["shard", &model, "-m", "tp=2", "-s", "x=<*, tp>", "-s", &spec];
    let plan = json(&args);
    let collectives = plan["collectives"].as_array().unwrap();
    assert_eq!(collectives.len(), 1, "{plan}");
    assert_eq!(
        (&collectives[0]["op"], &collectives[0]["bytes"]),
        (&"all_reduce".into(), &48.into())
    );
    assert_eq!((&plan["bytes"], &plan["stages"]), (&48.into(), &2.into()));
    let text = ok(&args);
    assert!(text.contains("all_reduce f32[3, 2]") && text.contains("48 bytes"), "{text}");
    let refused = |args: &[&str], expected: &str| {
        let (status, _, err) = girih(&[&["shard", model.as_str()], args].concat());
        assert!(status == 1 && err.contains(expected), "{args:?}: {err}");
    };
    refused(&["-m", "dp"], "dp=2,tp=4");
    refused(&["-m", "dp=0"], "dp");
    refused(&["-m", "dp=2", "-s", "x"], "x=<dp, *>");
    refused(&["-m", "dp=2", "-s", "z=<dp>"], "no value of the program is called 'z'");
    refused(&["-m", "dp=2", "-s", "x=<tp>"], "the spec of 'x'");
    refused(&["-m", "dp=2", "-s", "x=<dp, *, *>"], "the spec of 'x'");
}
