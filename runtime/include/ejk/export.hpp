// What libejk.so shows: everything else is hidden.
#pragma once
#define EJK_API __attribute__((visibility("default")))
