/*
 * symbols.cpp - from the program's own ELF file: its __shared__ variables (thread-local variables
 * of functions, and pp_shared) with their places and names; where its image lies; the source line
 * of an address (through addr2line, when it is there).
 */
#include "shim.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The room for `extern __shared__ T pp_shared[]`, the most a block can have on current devices. */
extern thread_local char pp_shared[232448];
thread_local char pp_shared[232448] __attribute__((aligned(16)));

namespace shim {

/* ---- the loaded program ---- */

struct Image { uintptr_t load, from, to; void *tls; size_t tls_bytes; };

static int first_object(struct dl_phdr_info *info, size_t, void *data) {
    Image *image = static_cast<Image *>(data);
    image->load = info->dlpi_addr;
    image->from = ~uintptr_t(0);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &p = info->dlpi_phdr[i];
        if (p.p_type == PT_LOAD) {
            image->from = std::min<uintptr_t>(image->from, info->dlpi_addr + p.p_vaddr);
            image->to = std::max<uintptr_t>(image->to, info->dlpi_addr + p.p_vaddr + p.p_memsz);
        }
        if (p.p_type == PT_TLS) {
            image->tls = info->dlpi_tls_data;
            image->tls_bytes = p.p_memsz;
        }
    }
    return 1;                                           /* the program comes first */
}

static Image look(void) {
    Image image = {};
    dl_iterate_phdr(first_object, &image);
    return image;
}

static const Image &program(void) {
    static const Image image = look();
    return image;
}

bool in_program(uintptr_t a) { return a - program().from < program().to - program().from; }
size_t shared_bytes(void) { return program().tls_bytes; }

uintptr_t shared_base(void) {
    static thread_local uintptr_t base = reinterpret_cast<uintptr_t>(look().tls);
    return base;
}

/* ---- its symbols ---- */

static std::string demangled(const char *name) {
    int status;
    char *plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    std::string s = status == 0 ? plain : name;
    free(plain);
    size_t end = s.rfind("::"); /* "k(float*)::s": the variable's own name */
    return end == std::string::npos ? s : s.substr(end + 2);
}

static std::vector<Variable> read_variables(void) {
    std::vector<Variable> all;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        return all;
    size_t size = static_cast<size_t>(st.st_size);
    void *map = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return all;
    const char *file = static_cast<const char *>(map);
    ElfW(Ehdr) head;
    memcpy(&head, file, sizeof head);
    for (unsigned i = 0; i < head.e_shnum; i++) {
        ElfW(Shdr) table, names;
        memcpy(&table, file + head.e_shoff + i * sizeof table, sizeof table);
        if (table.sh_type != SHT_SYMTAB)
            continue;
        memcpy(&names, file + head.e_shoff + table.sh_link * sizeof names, sizeof names);
        for (size_t at = 0; at + sizeof(ElfW(Sym)) <= table.sh_size; at += sizeof(ElfW(Sym))) {
            ElfW(Sym) s;
            memcpy(&s, file + table.sh_offset + at, sizeof s);
            const char *name = file + names.sh_offset + s.st_name;
            bool ours = strncmp(name, "_ZZ", 3) == 0 || strcmp(name, "pp_shared") == 0;
            if (ELF64_ST_TYPE(s.st_info) == STT_TLS && s.st_shndx != SHN_UNDEF && ours)
                all.push_back(Variable{s.st_value, s.st_size, demangled(name)});
        }
    }
    munmap(map, size);
    std::sort(all.begin(), all.end(),
              [](const Variable &a, const Variable &b) { return a.offset < b.offset; });
    return all;
}

const std::vector<Variable> &shared_variables(void) {
    static const auto *all = new std::vector<Variable>(read_variables());
    return *all;
}

/* ---- lines ---- */

std::string source_line(const void *pc) {
    uintptr_t a = reinterpret_cast<uintptr_t>(pc);
    char command[128], line[512] = "";
    if (!in_program(a) || strcmp(setting("SHIM_LINES", "1"), "0") == 0)
        return "";
    snprintf(command, sizeof command, "addr2line -e /proc/%d/exe 0x%lx 2>/dev/null",
             static_cast<int>(getpid()), static_cast<unsigned long>(a - program().load - 1));
    FILE *f = popen(command, "r");
    if (!f)
        return "";
    bool got = fgets(line, sizeof line, f) != nullptr;
    pclose(f);
    line[strcspn(line, "\n ")] = 0;
    if (!got || line[0] == '?')
        return "";
    const char *slash = strrchr(line, '/');
    return std::string(" at ") + (slash ? slash + 1 : line);
}

}   // namespace shim
