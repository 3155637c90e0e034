// Graphs drawn by Graphviz.
#pragma once

#include <string>

namespace muster::tool {

// Has Graphviz's `dot` draw the graph as SVG into a file ("-": standard output). Throws if it isn't installed
// or fails.
void draw_svg(const std::string& dot, const std::string& file);

}  // namespace muster::tool
