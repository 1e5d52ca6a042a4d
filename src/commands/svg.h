// Line plots as SVG text: panels one above the other, each with axes, ticks, labels and a legend.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace q2 {

struct PlotSeries {
    std::string label;  ///< in the legend; empty: not listed
    std::vector<std::pair<double, double>> points;
    int color = 0;         ///< an index into the palette, which repeats
    bool faint = false;    ///< behind a smoothed curve
    bool markers = false;  ///< a dot at every point too, for few points
};

struct PlotPanel {
    std::string title, x_label, y_label;
    std::vector<PlotSeries> series;
};

/// About `target` multiples of 1, 2 or 5 times a power of ten that lie in lo..hi; lo < hi, both finite.
std::vector<double> nice_ticks(double lo, double hi, int target);

/// A complete SVG document. Points that are not finite interrupt their line.
std::string svg_plot(const std::vector<PlotPanel>& panels);

/// Writes the document, whole or not at all. What stands at `path` and is not an SVG, such as a run's
/// metrics, is replaced only with `force` (Exit::usage).
void write_svg(const std::string& path, const std::string& document, bool force);

}  // namespace q2
