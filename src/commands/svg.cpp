#include "commands/svg.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>

#include "base/check.h"
#include "base/files.h"

namespace q2 {
namespace {

constexpr double kWidth = 840, kPanelHeight = 340;
constexpr double kLeft = 74, kRight = 16, kTop = 34, kBottom = 52;  // margins of a panel
constexpr int kLegendRows = 8;  // more would hide the curves: the legend then stands below the panel
constexpr double kLegendLine = 17;
// Okabe and Ito's palette: told apart without full colour vision.
constexpr const char* kPalette[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#000000"};

using Point = std::pair<double, double>;

bool finite(const Point& p) { return std::isfinite(p.first) && std::isfinite(p.second); }

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '&')
            out += "&amp;";
        else if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else
            out += uint8_t(c) < 0x20 ? ' ' : c;  // XML has no other control characters
    }
    return out;
}

struct Range {
    double lo = std::numeric_limits<double>::infinity(), hi = -lo;

    void include(double x) {
        lo = std::min(lo, x);
        hi = std::max(hi, x);
    }
    /// Never empty, with a little room around the data.
    Range padded(double share) const {
        if (lo > hi) return {0, 1};
        const double room = hi > lo ? share * (hi - lo) : std::max(1e-3, 0.1 * std::fabs(hi));
        return {lo - room, hi + room};
    }
};

/// From data to pixels of one panel.
struct Frame {
    Range x, y;
    double top;  // of the panel

    double px(double v) const { return kLeft + (v - x.lo) / (x.hi - x.lo) * (kWidth - kLeft - kRight); }
    double py(double v) const {
        return top + kPanelHeight - kBottom - (v - y.lo) / (y.hi - y.lo) * (kPanelHeight - kTop - kBottom);
    }
};

Frame frame_of(const PlotPanel& panel, double top) {
    Range x, y;
    for (const PlotSeries& series : panel.series) {
        for (const Point& p : series.points) {
            if (!finite(p)) continue;
            x.include(p.first);
            y.include(p.second);
        }
    }
    return {x.padded(0.01), y.padded(0.05), top};
}

/// Decimals that tell neighbouring ticks apart.
int decimals(const std::vector<double>& ticks) {
    if (ticks.size() < 2) return 3;
    return std::max(0, int(std::ceil(-std::log10(ticks[1] - ticks[0]) - 1e-9)));
}

class Writer {
  public:
    template <class... Args>
    void line(fmt::format_string<Args...> format, Args&&... args) {
        fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
        text_ += '\n';
    }
    void text(double x, double y, const char* anchor, const std::string& content, const char* extra = "") {
        line(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>)", x, y, anchor, extra,
             escaped(content));
    }
    std::string take() { return std::move(text_); }

  private:
    std::string text_;
};

void draw_axes(Writer& out, const Frame& f, const PlotPanel& panel) {
    const double bottom = f.py(f.y.lo), right = f.px(f.x.hi), middle = (bottom + f.py(f.y.hi)) / 2;
    const std::vector<double> xs = nice_ticks(f.x.lo, f.x.hi, 8), ys = nice_ticks(f.y.lo, f.y.hi, 6);
    for (const double x : xs) {
        out.line(R"(<path class="grid" d="M{:.1f} {:.1f}V{:.1f}"/>)", f.px(x), f.py(f.y.hi), bottom);
        out.text(f.px(x), bottom + 18, "middle", fmt::format("{:.{}f}", x, decimals(xs)));
    }
    for (const double y : ys) {
        out.line(R"(<path class="grid" d="M{:.1f} {:.1f}H{:.1f}"/>)", kLeft, f.py(y), right);
        out.text(kLeft - 8, f.py(y) + 4, "end", fmt::format("{:.{}f}", y, decimals(ys)));
    }
    out.line(R"(<path class="axis" d="M{:.1f} {:.1f}V{:.1f}H{:.1f}"/>)", kLeft, f.py(f.y.hi), bottom, right);
    out.text((kLeft + right) / 2, bottom + 38, "middle", panel.x_label);
    out.text(18, middle, "middle", panel.y_label,
             fmt::format(R"svg( transform="rotate(-90 18 {:.1f})")svg", middle).c_str());
    out.text(kLeft, f.top + 20, "start", panel.title, R"( font-weight="bold")");
}

std::string path_of(const Frame& f, const PlotSeries& series) {
    std::string path;
    bool pen_down = false;
    for (const Point& p : series.points) {
        if (finite(p))
            path += fmt::format("{}{:.1f} {:.1f}", pen_down ? 'L' : 'M', f.px(p.first), f.py(p.second));
        pen_down = finite(p);
    }
    return path;
}

void draw_series(Writer& out, const Frame& f, const PlotSeries& series) {
    const char* color = kPalette[size_t(series.color) % std::size(kPalette)];
    out.line(R"(<path d="{}" fill="none" stroke="{}" stroke-width="{}" stroke-opacity="{}"/>)",
             path_of(f, series), color, series.faint ? 0.8 : 1.6, series.faint ? 0.3 : 1.0);
    if (!series.markers) return;
    for (const Point& p : series.points)
        if (finite(p))
            out.line(R"(<circle cx="{:.1f}" cy="{:.1f}" r="2.6" fill="{}"/>)", f.px(p.first), f.py(p.second),
                     color);
}

/// Of a legend below the panel; 0 where it has room in the plot.
double legend_height(const PlotPanel& panel) {
    const auto rows = std::count_if(panel.series.begin(), panel.series.end(),
                                    [](const PlotSeries& series) { return !series.label.empty(); });
    return rows > kLegendRows ? kLegendLine * double(rows) + 8 : 0;
}

void draw_legend(Writer& out, const Frame& f, const PlotPanel& panel) {
    const bool below = legend_height(panel) > 0;
    const double right = kWidth - kRight - 8, key = below ? kLeft : right - 22;
    double y = below ? f.top + kPanelHeight + 12 : f.top + kTop + 16;
    for (const PlotSeries& series : panel.series) {
        if (series.label.empty()) continue;
        const double width = 36 + 6.8 * double(series.label.size());  // about, for the ground under the text
        if (!below)
            out.line(
                R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="17" fill="white" fill-opacity="0.8"/>)",
                right - width, y - 13, width);
        const char* color = kPalette[size_t(series.color) % std::size(kPalette)];
        out.line(R"(<path d="M{:.1f} {:.1f}h22" stroke="{}" stroke-width="2"/>)", key, y - 4, color);
        if (series.markers)
            out.line(R"(<circle cx="{:.1f}" cy="{:.1f}" r="2.6" fill="{}"/>)", key + 11, y - 4, color);
        out.text(below ? key + 28 : key - 6, y, below ? "start" : "end", series.label);
        y += kLegendLine;
    }
}

}  // namespace

std::vector<double> nice_ticks(double lo, double hi, int target) {
    const double rough = (hi - lo) / target, power = std::pow(10.0, std::floor(std::log10(rough)));
    const double share = rough / power;
    const double step = power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
    std::vector<double> ticks;
    // Multiples by a whole number, not by adding up, so that 0 is 0.
    for (double i = std::ceil(lo / step - 1e-9); i * step <= hi + 1e-9 * step; ++i)
        ticks.push_back(i * step + 0.0);
    return ticks;
}

std::string svg_plot(const std::vector<PlotPanel>& panels) {
    Writer out;
    double height = 0, top = 0;
    for (const PlotPanel& panel : panels) height += kPanelHeight + legend_height(panel);
    out.line(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
             R"(font-family="sans-serif" font-size="12" fill="#222">)",
             kWidth, height);
    out.line("<style>.grid{{stroke:#ddd}}.axis{{stroke:#222;fill:none}}</style>");
    out.line(R"(<rect width="{}" height="{}" fill="white"/>)", kWidth, height);
    for (const PlotPanel& panel : panels) {
        const Frame frame = frame_of(panel, top);
        draw_axes(out, frame, panel);
        for (const PlotSeries& series : panel.series) draw_series(out, frame, series);
        draw_legend(out, frame, panel);
        top += kPanelHeight + legend_height(panel);
    }
    out.line("</svg>");
    return out.take();
}

void write_svg(const std::string& path, const std::string& document, bool force) {
    if (!force && std::filesystem::is_regular_file(path))
        check(MappedFile(path).text().substr(0, 1024).find("<svg") != std::string_view::npos, Exit::usage,
              path, ": exists and is not an SVG; choose another name, or give --force to replace it");
    write_file_atomic(path, document);
}

}  // namespace q2
