// Memory for the way out of a program that has run out of memory. Messages need some, and so do destructors
// of the JSON library, which would end the program without a line.
#pragma once

// To be called once, before anything fails. When operator new fails for the first time, the reserve is freed
// and operator new tries again; if it fails again, it throws std::bad_alloc as usual.
void reserve_memory();
