#include "cli/run/display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <optional>
#include <ostream>

#include "cli/live/plain.h"
#include "cli/live/table.h"
#include "cli/live/text.h"

namespace trainyard::cli {
namespace {

constexpr Duration kFrame = std::chrono::milliseconds(250);
constexpr Duration kDisplayInterval = std::chrono::milliseconds(500);
constexpr Duration kLineEvery = std::chrono::seconds(10);

class TableDisplay : public Display {
 public:
  explicit TableDisplay(const Console& console) : console_(console) {}
  Duration interval() const override { return kFrame; }

  void show(const RunSnapshot& run, TimePoint, UnixMillis) override {
    TableStyle style{console_.columns, 0, console_.colour};
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      style.columns = size.ws_col;
      style.rows = size.ws_row > 1 ? size.ws_row - 1 : 0;  // the cursor stands below the frame
    }
    lines_ = renderTable(run, style);
    write(screen_.draw(lines_));
  }

  void event(const RunEvent& event) override {
    const bool bad = event.kind == "warning" || event.kind == "restart";
    // The line first: drawing depends on what the screen then shows.
    const Tone tone = bad ? Tone::kWarn : event.kind == "output" ? Tone::kPlain : Tone::kDim;
    std::string text = screen_.print(paint(renderEvent(event), tone, console_.colour));
    text += screen_.draw(lines_);
    write(text);
  }

  void finish(const RunSnapshot& run, UnixMillis unix_ms) override {
    show(run, TimePoint(), unix_ms);
    lines_.clear();
  }

 private:
  void write(const std::string& text) { console_.out << text << std::flush; }
  const Console& console_;
  Screen screen_;
  std::vector<std::string> lines_;  // of the frame now on the screen
};

class LineDisplay : public Display {
 public:
  LineDisplay(std::ostream& out, bool json) : out_(out), json_(json) {}
  Duration interval() const override { return kDisplayInterval; }

  void show(const RunSnapshot& run, TimePoint now, UnixMillis unix_ms) override {
    if (next_ && now < *next_) return;
    next_ = now + kLineEvery;
    line(run, unix_ms);
  }

  void event(const RunEvent& event) override {
    out_ << (json_ ? renderEventJson(event) : renderEvent(event)) << std::endl;
  }

  void finish(const RunSnapshot& run, UnixMillis unix_ms) override { line(run, unix_ms); }

 private:
  void line(const RunSnapshot& run, UnixMillis unix_ms) {
    out_ << (json_ ? renderJson(run, unix_ms) : renderLine(run)) << std::endl;
  }
  std::ostream& out_;
  const bool json_;
  std::optional<TimePoint> next_;
};

}  // namespace

std::unique_ptr<Display> makeDisplay(const Console& console, bool json) {
  if (json) return std::make_unique<LineDisplay>(console.err, true);
  if (console.out_is_terminal) return std::make_unique<TableDisplay>(console);
  return std::make_unique<LineDisplay>(console.out, false);
}

}  // namespace trainyard::cli
