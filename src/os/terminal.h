// What the other end of a stream is.
#pragma once

namespace carat {

bool is_terminal(int descriptor);

/// Columns of the terminal behind `descriptor`; without one, $COLUMNS or 80. Always within [20, 1000].
int terminal_width(int descriptor);

/// Colour only on a terminal that is not "dumb", and never with a non-empty $NO_COLOR (no-color.org).
bool use_colour(int descriptor);

}  // namespace carat
