//! A timeline as a self-contained HTML page, with a row per stream, and with panning and zoom. The
//! page contains the trace in Chrome's format, from which its script draws.

/// The page for a trace in Chrome's format.
pub(super) fn page(trace: &str, title: &str) -> String {
    // The trace must not contain the end tag of its element.
    let trace = trace.replace("</", "<\\/");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>{STYLE}</style></head><body>\n<header><b>{title}</b> <span id=\"about\"></span></header>\n\
         <main id=\"view\"></main>\n<script type=\"application/json\" id=\"trace\">{trace}</script>\n\
         <script>{SCRIPT}</script></body></html>\n"
    )
}

const STYLE: &str = "html,body{margin:0;font:13px sans-serif}\
header{position:sticky;top:0;padding:6px 12px;background:#fffd;border-bottom:1px solid #ccc;z-index:2}\
header span{color:#666;margin-left:12px}\
main{cursor:grab;overflow:hidden;user-select:none;touch-action:none}\
.row{position:relative;height:26px;border-bottom:1px solid #eee;margin-left:150px}\
.row b{position:absolute;left:-150px;width:142px;padding:4px 0 0 8px;font-weight:400;white-space:nowrap;\
overflow:hidden;text-overflow:ellipsis;background:#fff;z-index:1}\
.span{position:absolute;top:3px;height:20px;min-width:1px;border-radius:2px;overflow:hidden;\
font:11px/20px monospace;white-space:nowrap;color:#fff;background:#36c}\
.copy_to_device,.copy_from_device,.copy_on_device{background:#283}.compile{background:#c60}.host{background:#737}";

/// Reads the trace, creates an element per span, and positions the elements by the visible time
/// range.
const SCRIPT: &str = r#"
const events = JSON.parse(document.getElementById("trace").textContent).traceEvents;
const spans = events.filter(e => e.ph === "X");
const name = {};
for (const e of events) if (e.ph === "M") name[e.name + e.pid + (e.tid ?? "")] = e.args.name;
const view = document.getElementById("view"), rows = {};
let from = Math.min(...spans.map(e => e.ts)), to = Math.max(...spans.map(e => e.ts + e.dur));
const first = spans.length ? from : 0;
if (!spans.length) [from, to] = [0, 1];
for (const e of spans) {
  const key = e.pid + "/" + e.tid;
  if (!rows[key]) {
    rows[key] = view.appendChild(document.createElement("div"));
    rows[key].className = "row";
    const title = rows[key].appendChild(document.createElement("b"));
    title.textContent = (name["process_name" + e.pid] ?? e.pid) + ", " + (name["thread_name" + key.replace("/", "")] ?? e.tid);
  }
  const element = e.element = rows[key].appendChild(document.createElement("div"));
  element.className = "span " + e.cat;
  element.textContent = e.name;
  const bytes = e.args ? ", " + e.args.bytes + " bytes" : "";
  element.title = e.name + " (" + e.cat + "): " + e.dur.toFixed(2) + " us at " + (e.ts - first).toFixed(2) + " us" + bytes;
}
function draw() {
  const width = Math.max(view.clientWidth - 150, 1), scale = width / Math.max(to - from, 1e-3);
  for (const e of spans) {
    e.element.style.left = (e.ts - from) * scale + "px";
    e.element.style.width = e.dur * scale + "px";
  }
  document.getElementById("about").textContent =
    spans.length + " spans, " + (to - from).toFixed(1) + " us in view; scroll to zoom, drag to move";
}
view.addEventListener("wheel", event => {
  const at = from + (to - from) * Math.max(event.clientX - 150, 0) / Math.max(view.clientWidth - 150, 1);
  const factor = Math.exp(event.deltaY / 500);
  [from, to] = [at - (at - from) * factor, at + (to - at) * factor];
  event.preventDefault();
  draw();
}, { passive: false });
view.addEventListener("pointermove", event => {
  if (!event.buttons) return;
  const step = event.movementX * (to - from) / Math.max(view.clientWidth - 150, 1);
  [from, to] = [from - step, to - step];
  draw();
});
addEventListener("resize", draw);
draw();
"#;
