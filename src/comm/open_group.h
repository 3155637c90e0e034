// Whether calls of this thread wait for a group_end.
#pragma once

namespace muster {

bool group_is_open();

}  // namespace muster
