//! Golden files: the expected texts of tests, such as graphs and kernels after a pass. A test names
//! its file below `tests/golden` of its crate, and `make golden` writes the files anew.

use std::path::Path;

/// Compares a text with a golden file: `golden!("fuse/a_softmax.txt", program)`. The text is anything
/// that can be displayed. If `GIRIH_UPDATE` is set (`make golden`), writes the file.
#[macro_export]
macro_rules! golden {
    ($file:expr, $text:expr) => {
        $crate::testing::compare_golden(
            env!("CARGO_MANIFEST_DIR"),
            $file.as_ref(),
            &$text.to_string(),
        )
    };
}

/// Compares a text with a golden file of the crate in `directory`, as [`golden!`](crate::golden)
/// does. Empty lines around the text do not count.
///
/// Panics: if they differ.
#[track_caller]
pub fn compare_golden(directory: &str, file: &Path, text: &str) {
    let path = Path::new(directory).join("tests/golden").join(file);
    let text = format!("{}\n", text.trim_start_matches('\n').trim_end());
    if std::env::var_os("GIRIH_UPDATE").is_some() {
        let folder = path.parent().expect("the file is in a folder");
        std::fs::create_dir_all(folder).expect("the folder of the golden file can be made");
        std::fs::write(&path, &text).expect("the golden file can be written");
    }
    if let Some(difference) = difference(&path, &text) {
        panic!("{difference}");
    }
}

/// The message of a failure if a text differs from that of a file; `None` if they are equal.
fn difference(path: &Path, text: &str) -> Option<String> {
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    let differs = || {
        format!(
            "the text differs from {}; if it is as it should be, run `make golden`\n\
             expected:\n{expected}\nfound:\n{text}",
            path.display()
        )
    };
    (text != expected).then(differs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_differs_from_its_file_names_the_command() {
        let missing = difference(Path::new("tests/golden/missing.txt"), "a text").unwrap();
        assert!(missing.contains("run `make golden`") && missing.contains("a text"), "{missing}");
    }
}
