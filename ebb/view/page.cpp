// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/page.h"

#include <string_view>

#include "ebb/core/embedded_file.h"
#include "ebb/core/version.h"
#include "ebb/view/page_files.h"

namespace ebb {
namespace {

// Text between tags, or in quotation marks inside of one.
std::string as_html(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

// Inside of a script nothing may look like the end of it.
std::string as_script_data(const Json& data) {
  const std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string_view file(std::string_view name) {
  for (const EmbeddedFile& own : kPageFiles) {
    if (own.name == name) return own.text;
  }
  return {};
}

constexpr std::string_view kWorker = "planner_worker.js";

// Scripts of the page; what a worker runs, and with what, is text to them.
void add_explorer(std::string& html, std::string& scripts) {
  for (const EmbeddedFile& own : kExplorerFiles) {
    if (own.name != kWorker && own.name.ends_with(".js")) {
      scripts.append(own.text);
      continue;
    }
    const char* const id = own.name == kWorker ? "planner-worker" : "planner";
    html.append("<script type=\"text/plain\" id=\"").append(id).append("\">");
    html.append(own.text).append("</script>\n");
  }
}

}  // namespace

std::string page_of(const Json& data) {
  Json whole = data;
  whole["version"] = version();
  std::string html = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  html += "<title>" + as_html(whole.value("title", "ebb")) + "</title>\n<style>\n";
  html.append(file("page.css")).append("</style>\n</head>\n<body>\n");
  html.append(file("page.html"));
  html += "<script type=\"application/json\" id=\"data\">" + as_script_data(whole) + "</script>\n";
  std::string scripts;
  for (const EmbeddedFile& own : kPageFiles) {
    if (own.name.ends_with(".js")) scripts.append(own.text);
  }
  if (data.contains("explorer")) add_explorer(html, scripts);
  html.append("<script>\n\"use strict\";\n(() => {\n").append(scripts);
  html += "})();\n</script>\n</body>\n</html>\n";
  return html;
}

std::string in_frame(const std::string& page) {
  return "<iframe title=\"ebb\" sandbox=\"allow-scripts\" "
         "style=\"width:100%;height:40rem;border:0\" srcdoc=\"" +
         as_html(page) + "\"></iframe>";
}

}  // namespace ebb
