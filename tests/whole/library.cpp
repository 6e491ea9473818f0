/*
 * library.cpp - a user of libppsplit, in C++: the headers compile, what they declare links, and
 * exceptions and destructors live outside of what diag_run() runs.  library.t compiles it against
 * an installed tree. library MODEL.onnx SPLIT
 */
#include <ppsplit.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Job {
    Arena *arena;
    std::string path;
    ImportOptions import;
    PartitionOptions partition;
    Pipe *pipe;
};

void split(void *arg)
{
    Job *job = static_cast<Job *>(arg);
    const char *path = job->path.c_str();
    LossOptions none = LossOptions();
    Graph *g = import_models(job->arena, 1, &path, &job->import);
    Loss loss = loss_append(g, &none, &job->import);
    job->pipe = pipe_build(g, &job->partition, &loss);
    pipe_costs(job->pipe);
}

class Compiled {
public:
    Compiled(const std::string &path, const std::vector<std::string> &points)
        : arena(arena_new(), arena_free), job()
    {
        job.arena = arena.get();
        job.path = path;
        job.import.limits = limits_default();
        for (const std::string &point : points)
            vec_push(job.arena, &job.partition.split, point.c_str());
        if (int status = diag_run(split, &job))
            throw std::runtime_error(path + ": status " + std::to_string(status));
    }
    const Pipe *operator->() const { return job.pipe; }

private:
    std::unique_ptr<Arena, void (*)(Arena *)> arena;
    Job job;
};

}

int main(int argc, char **argv)
{
    if (argc != 3)
        return EXIT_USAGE;
    std::vector<std::string> points(1, argv[2]);
    Compiled compiled(argv[1], points);
    for (uint32_t i = 0; i < compiled->stage.n; i++)
        std::cout << "stage " << i << ": " << compiled->stage.at[i].label << '\n';
    const Edge &edge = compiled->edge.at[0];
    const Value *crossing = val(compiled->graph, edge.value);
    std::cout << "edge " << edge.from << " to " << edge.to << ": rank " << crossing->shape.rank
              << ", " << edge.bytes << " bytes\n";
    try {
        Compiled("nowhere.onnx", points);
    } catch (const std::runtime_error &e) {
        std::cout << e.what() << '\n';
    }
    SchedError e;
    Schedule *s = NULL;
    if (sched_generate("gpipe", 4, 4, 8, SCHED_PLACE_DEFAULT, &s, &e) != SCHED_OK)
        return 1;
    SchedCosts costs;
    SchedSim sim;
    sched_costs_default(&costs);
    int status = sched_simulate(s, &costs, &sim, &e);
    std::cout << s->name << ": makespan " << sim.makespan << ", peak " << sim.peak[0] << '\n';
    sched_sim_free(&sim, s->ranks);
    sched_free(s);
    return status;
}
