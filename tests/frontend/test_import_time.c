/*
 * test_import_time.c - the importers of sequences, of samples of images and of quantised numbers: a
 * node unrolled, made of gathers or of rounding, against PyTorch's values and gradients in float64.
 */
#include "import_one.h"

/* ---- recurrence: three steps of a sample, torch.nn.RNN, GRU, LSTM; gates in ONNX's order ---- */

// clang-format off
static const struct {
    Op op;
    int gates;
    const char *attrs;
    double y[6], dx[6], dw[16], dr[16];
} recurrent[] = {
    {OP_RNN, 1, "",
     {0.95993047785727403, 0.9718398109731069, 0.99726230667148985, 0.99983390933216998,
      0.97575279435091788, 0.99564012124322132},
     {0.071411283973512291, 0.10325188946017656, 0.0014584018044035373, 0.0046398698683201714,
      0.018214588177764165, 0.044014632168018326},
     {0.024895990352295595, 0.039770890663589666, 0.0079991500284702782, 0.036460394864898389},
     {0.053143723696261025, 0.053333522854041075, 0.0090105005895894392, 0.0090370138994489996}},
    {OP_GRU, 3, "linear_before_reset=1i",
     {0.26134117314416161, 0.19092193726010204, 0.21667186514308467, 0.26614651960860092,
      0.29918714150756653, 0.16482204227406516},
     {-0.30375584921308524, 0.10059925287863643, -0.30688448380897809, 0.036862979405575896,
      0.00799994994047931, 0.37873806441153962},
     {0.0096273384937753514, -0.10721985716301367, -0.13986425302712813, -0.36139990946510536,
      0.147935128686042, 0.13366687030749191, 0.059183630994242079, 0.055223185139817353,
      0.71290111773039011, 0.59623027546212182, 0.21422474433838676, 0.28184103034044705},
     {0.0035488976160679758, -0.00052971423969023698, -0.018812196035855426,
      -0.007298557172292771, 0.052243366808620392, 0.050020993068019742, 0.031468366686051574,
      0.036708711571964245, 0.16348784198463795, 0.16215284825655682, 0.063885746525466094,
      0.076604699582231178}},
    {OP_LSTM, 4, "",
     {-0.44353718467643699, -0.48288415496363435, -0.5913199962147232, -0.58277911410336092,
      -0.60150742673888791, -0.39024129101295779},
     {0.11237159365579175, -0.008657544448130031, 0.13354083303907588, -0.04463002034309526,
      -0.30129638573517148, -0.53607793739566179},
     {-0.16640956142974137, -0.19408514272315805, -0.044320024752499479, 0.0010336702503038486,
      -0.071896413335142281, -0.085355471672358921, -0.10391925674282626, -0.15857138291953987,
      -0.11698192736623081, -0.026641806864786399, -0.059040219447086692, 0.01576577435397733,
      0.13232274449216425, 0.17136174678654245, 0.080348967305466479, -0.12838359325782145},
     {0.11691884194827698, 0.12077580940835009, 0.06765220698003524, 0.067372171381707202,
      0.050693395520123752, 0.052336359029653959, 0.050483229376106102, 0.053651758327516563,
      0.10396256330081041, 0.10665117885269962, 0.074727464483318781, 0.075259215193033857,
      -0.059488855510090026, -0.064056878783551333, -0.18684511455355071, -0.18436554326811713}},
};
// clang-format on

/* high sin(0.7 k + phase): what the numbers were made with. */
static ValueId wave(T *t, Shape s, double phase, double high)
{
    double v[64];
    for (int64_t k = 0; k < shape_elements(&s); k++)
        v[k] = high * sin(0.7 * (double)k + phase);
    return input(t, s, v);
}

static void test_recurrent(void)
{
    for (size_t i = 0; i < sizeof recurrent / sizeof *recurrent; i++) {
        T *t = begin();
        int g = recurrent[i].gates;
        ValueId in[4] = {wave(t, S(3, 1, 2), 0.1, 1), wave(t, S(1, 2 * g, 2), 0.2, 1),
                         wave(t, S(1, 2 * g, 2), 0.3, 1), wave(t, S(1, 4 * g), 0.4, 1)};
        ValueId dx[4];
        lower(t, recurrent[i].op, 14, recurrent[i].attrs, 4, in, 1);
        differentiate(t, t->out[0], NONE, dx);
        Tensor *at = evaluate(t);
        ok(close_to(&at[t->out[0]], recurrent[i].y), "%s", op_name(recurrent[i].op));
        ok(close_to(&at[dx[0]], recurrent[i].dx) && close_to(&at[dx[1]], recurrent[i].dw) &&
               close_to(&at[dx[2]], recurrent[i].dr),
           "%s: gradients", op_name(recurrent[i].op));
        arena_free(t->arena);
    }
}

/* ---- GridSample: an image of 3 x 4 at four places, some outside: F.grid_sample ---- */

// clang-format off
static const struct { const char *attrs; double y[4], dx[12], dgrid[8]; } samples[] = {
    {"mode=linear padding_mode=zeros align_corners=0i",
     {0.0408407294382844, 0, 0.301337955330111, 0},
     {0, 0.288412779006201, 0.0178593581343531, 0, 0, 0, 0, 0, 0, 0, 0.00527391046194027,
      0.0281881853812903},
     {0.0180410424782105, -1.12335675902371, 0, 0, 0.171597476567243, 0.820676437328088, 0, 0}},
    {"mode=linear padding_mode=zeros align_corners=1i",
     {0.601709121139653, 0.232686669475451, 0.719111904489802, 0.0366787824948806},
     {0.0518474700672095, 0.58298197250653, 0.118336260371653, 0, 0, 0, 0, 0.142642006889428, 0,
      0, 0.26856369304741, 0.645871476076845},
     {0.220185328684568, -0.678038044935151, -0.680385561108456, 1.00330232351989,
      0.294699772943922, 0.570184891989204, 0.0194025955420543, 0.00563766751373623}},
    {"mode=linear padding_mode=border align_corners=0i",
     {0.956056145667143, 0.998543345374605, 0.733691565985372, 0.0998334166468282},
     {0.141120008059868, 0.702221607787314, 0.0434836043894063, 0, 0, 0, 0, 0, 0, 0,
      0.123458972897523, 1.65944153977147},
     {0.422329614890925, -0, -0, -0, 0.4178020693206, -0, 0, 0}},
    {"mode=linear padding_mode=border align_corners=1i",
     {0.865587581125735, 0.453783866132637, 0.764625059176976, 0.0998334166468282},
     {0.141120008059868, 0.619879357362575, 0.125825854814145, 0, 0, 0, 0, 0.278179413995317, 0,
      0, 0.386341820783449, 1.11837927789022},
     {0.316747211168194, -0, -0, 1.95663296179821, 0.31335155199045, -0, 0, 0}},
    {"mode=linear padding_mode=reflection align_corners=0i",
     {0.956056145667143, 0.958204180150018, 0.733691565985372, 0.28495752637875},
     {0.0988143293427908, 0.744527286504391, 0.0434836043894063, 0, 0, 0, 0, 0, 0, 0,
      0.273035412276723, 1.50986510039227},
     {0.422329614890925, -0, -0.538918719169765, -0, 0.4178020693206, -0, -0.174289609535383, -0}},
    {"mode=linear padding_mode=reflection align_corners=1i",
     {0.315805514587921, 0.364789942613335, 0.688014417128131, 0.417854601136785},
     {0.0518474700672095, 0.660700975561863, 0.118336260371653, 0, 0.00462327593240012,
      0.0438276438609702, 0.26080512928442, 0.263664785133731, 0, 0, 0.620048716616486,
      0.645871476076845},
     {0.204869233936566, -1.41266989945056, -0.273862271907531, 1.80451995874611,
      0.263164233874699, 0.959771542141721, -0.108200076135344, 0.09030977211368}},
    {"mode=nearest padding_mode=zeros align_corners=0i",
     {0, 0, 0, 0},
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     {0, 0, 0, 0, 0, 0, 0, 0}},
    {"mode=nearest padding_mode=zeros align_corners=1i",
     {0.998543345374605, 0.998543345374605, 0.717356090899523, 0},
     {0, 0.74570521217672, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.78290051266899},
     {0, 0, 0, 0, 0, 0, 0, 0}},
    {"mode=nearest padding_mode=border align_corners=0i",
     {0.998543345374605, 0.998543345374605, 0.717356090899523, 0.0998334166468282},
     {0.141120008059868, 0.74570521217672, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.78290051266899},
     {0, 0, 0, 0, 0, 0, 0, 0}},
    {"mode=nearest padding_mode=border align_corners=1i",
     {0.998543345374605, 0.998543345374605, 0.717356090899523, 0.0998334166468282},
     {0.141120008059868, 0.74570521217672, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.78290051266899},
     {0, 0, 0, 0, 0, 0, 0, 0}},
    {"mode=nearest padding_mode=reflection align_corners=0i",
     {0.998543345374605, 0.998543345374605, 0.717356090899523, 0.0998334166468282},
     {0.141120008059868, 0.74570521217672, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.78290051266899},
     {0, 0, 0, 0, 0, 0, 0, 0}},
    {"mode=nearest padding_mode=reflection align_corners=1i",
     {0.998543345374605, 0.998543345374605, 0.717356090899523, 0.717356090899523},
     {0, 0.886825220236588, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.78290051266899},
     {0, 0, 0, 0, 0, 0, 0, 0}},
    {"mode=cubic padding_mode=zeros align_corners=0i",
     {0.0379686658804085, -0.0839067399172258, 0.39466204806736, -0.00297107758682016},
     {-0.0203990034336885, 0.351190631812072, 0.0171904298512389, -0.00084967897631563,
      0.00318996970387452, -0.0551671930853545, -0.00285569701173162, 0.00338709002641971, 0,
      -0.000426318754039221, 0.00409022907164597, -0.0541544445211765},
     {-0.0109218187172825, -1.15401374846175, -0.726448081409892, -0.0183717271010334,
      0.517935760598899, 1.26910248063638, 0.000402051612011137, -0.0017689035212418}},
    {"mode=cubic padding_mode=zeros align_corners=1i",
     {0.959135463825251, 0.295176309132718, 0.83170500315874, -0.0129989561911527},
     {-0.000695895219761822, 0.686979116414329, 0.12482584432398, -0.0387145782418297,
      -0.0007867323696801, -0.0192074530767021, -0.0840365151142625, 0.130174086858574, 0,
      -0.0598459665582382, 0.296641823837442, 0.910370295285031},
     {0.373814858899024, -0.778049404366393, -0.95679327639073, 1.25893451449341,
      0.578291237455511, -0.0915997186322766, -0.0124958530198535, 0.0101309177697199}},
    {"mode=cubic padding_mode=border align_corners=0i",
     {0.97432643992535, 1.10055508790683, 0.847548285363803, 0.0905681723757143},
     {0.119422236987314, 0.795368191699697, 0.0389324767428217, -0.00192433274039909,
      -0.00722239747411903, -0.0551671930853545, -0.00285569701173162, -0.0528462606430305, 0,
      -0.0123096622105714, 0.118102564709572, 1.73022580593138},
     {0.227859519767669, -0.136166267998101, -1.56921737594336e-15, 1.51935012392321,
      1.06217639485599, 0.329502928010884, 2.46247022290908e-17, -0.00725014767011771}},
    {"mode=cubic padding_mode=border align_corners=1i",
     {1.13281628398214, 0.442078719886705, 0.870190762063047, 0.0432869960045975},
     {0.0913322805258026, 0.719456585949969, 0.130571204895652, -0.0596892633178775,
      -0.00525571525806973, -0.0192074530767021, -0.0840365151142625, 0.283032503859885, 0,
      -0.0804277109014646, 0.437265144519899, 1.25668467082274},
     {0.236276887138274, 0.0664371310390903, -0.0521091709391973, 2.51470026803678,
      0.604415901739305, -0.598738721665879, -0.0347817092600247, 0.0170817995250925}},
    {"mode=cubic padding_mode=reflection align_corners=0i",
     {1.03106063745917, 1.08277188287078, 0.980769179220299, 0.291744185853938},
     {0.0855425257354258, 0.928649486417621, 0.0349741484166673, -0.00211589275761693,
      -0.0126828756849696, -0.141276079918677, -0.0170623403112988, -0.0700074564172731, 0,
      -0.027756446707897, 0.271176750276888, 1.62028391385671},
     {0.232477229690555, -1.55741175701217, -0.30582844903976, 1.81499790139708, 1.28491839293885,
      0.186573092629615, -0.225555602140025, 0.00730003548712892}},
    {"mode=cubic padding_mode=reflection align_corners=1i",
     {0.52034038053526, 0.5850188762052, 0.802717119519661, 0.396819540625442},
     {-0.000695895219761822, 0.794430893644717, 0.0670400392940141, -0.0615879471007765,
      0.000569051750803894, -0.0244510167273068, 0.177143565922711, 0.220205521049242,
      -0.000136791165477192, -0.139836485570766, 0.72664142216992, 0.910403374858254},
     {0.254031312561958, -1.9185636256626, -0.324387920092125, 2.32064756951716,
      0.539713029495119, 0.313363870673417, -0.16429846444341, 0.0205564438871359}},
};
// clang-format on

static void test_grid_sample(void)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        T *t = begin();
        ValueId in[2] = {wave(t, S(1, 1, 3, 4), 0.1, 1), wave(t, S(1, 2, 2, 2), 0.5, 1.4)};
        ValueId r = wave(t, S(1, 1, 2, 2), 0.9, 1), dx[3];
        lower(t, OP_GridSample, 20, samples[i].attrs, 2, in, 1);
        differentiate(t, t->out[0], r, dx);
        Tensor *at = evaluate(t);
        ok(close_to(&at[t->out[0]], samples[i].y), "GridSample %s", samples[i].attrs);
        /* nearest: the places have no gradient at all */
        bool moves = dx[1] != NONE;
        for (int k = 0; k < 8 && !moves; k++)
            moves = samples[i].dgrid[k] != 0;
        ok(close_to(&at[dx[0]], samples[i].dx) &&
               (!moves || (dx[1] != NONE && close_to(&at[dx[1]], samples[i].dgrid))),
           "GridSample %s: gradients", samples[i].attrs);
        arena_free(t->arena);
    }
}

/* A place that is no number reads nothing outside; PyTorch's zeros padding gives 0. */
static void test_grid_sample_nan(void)
{
    T *t = begin();
    ValueId in[2] = {wave(t, S(1, 1, 3, 4), 0.1, 1), input(t, S(1, 1, 1, 2), V((double)NAN, 0.5))};
    lower(t, OP_GridSample, 20, "mode=nearest", 2, in, 1);
    ok(close_to(&evaluate(t)[t->out[0]], V(0)), "GridSample: NaN is outside");
    arena_free(t->arena);
}

/* ---- quantised, dequantised: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255) ---- */

static void test_fake_quantise(void)
{
    T *t = begin();
    ValueId x = input(t, S(6), V(-0.3, -0.04, 0, 0.24, 25.52, 100)), dx[2];
    ValueId v[2] = {g_mul(t->g, x, g_like(t->g, x, 1.0000000001)), g_scalar(t->g, DT_F64, 0.1)};
    lower(t, OP_QuantizeLinear, 13, "", 2, v, 1);
    v[0] = t->out[0];
    lower(t, OP_DequantizeLinear, 13, "", 2, v, 1);
    differentiate(t, t->out[0], NONE, dx);
    Tensor *at = evaluate(t);
    ok(close_to(&at[t->out[0]], V(0, 0, 0, 0.2, 25.5, 25.5)), "QuantizeLinear, DequantizeLinear");
    ok(close_to(&at[dx[0]], V(0, 1, 1, 1, 1, 0)), "their gradient goes straight through");
    arena_free(t->arena);
}

/* Another scale on the way back: the gradient is what the value moves by. */
static void test_two_scales(void)
{
    T *t = begin();
    ValueId x = input(t, S(3), V(-0.3, 0.24, 100)), dx;
    ValueId v[2] = {g_mul(t->g, x, g_like(t->g, x, 1.0000000001)), g_scalar(t->g, DT_F64, 0.1)};
    lower(t, OP_QuantizeLinear, 13, "", 2, v, 1);
    v[0] = t->out[0], v[1] = g_scalar(t->g, DT_F64, 0.3);
    lower(t, OP_DequantizeLinear, 13, "", 2, v, 1);
    differentiate(t, t->out[0], NONE, &dx);
    Tensor *at = evaluate(t);
    ok(close_to(&at[t->out[0]], V(0, 0.6, 76.5)) && close_to(&at[dx], V(0, 3, 0)),
       "DequantizeLinear by another scale");
    arena_free(t->arena);
}

/* Corners of a length that is scaled to 2.4: ONNX's own cases place the last element by 2.4 - 1,
 * F.interpolate, whose files have the scale too, on the last element. */
static void test_align_corners(void)
{
    static double scales[] = {1, 1, 0.6};
    static const double want[2][2] = {{0, 33 / 7.0}, {0, 9}};
    for (int i = 0; i < 2; i++) {
        T *t = begin();
        t->from_pytorch = i;
        ValueId in[3] = {input(t, S(1, 1, 4), V(0, 1, 4, 9)), NONE,
                         graph_const(t->g, NULL, (Tensor){DT_F64, S(3), scales})};
        lower(t, OP_Resize, 13, "mode=linear coordinate_transformation_mode=align_corners", 3, in,
              1);
        ok(close_to(&evaluate(t)[t->out[0]], want[i]), "Resize, align_corners, %s",
           i ? "of PyTorch" : "of ONNX");
        arena_free(t->arena);
    }
}

/* F.interpolate(antialias=True) of five pixels: by a scale of 0.5 to two, by corners to three. */
static void test_antialias(void)
{
    static const char halves[] = "mode=linear antialias=1i exclude_outside=1i",
                      corners[] = "mode=linear antialias=1i exclude_outside=1i "
                                  "coordinate_transformation_mode=align_corners";
    static int64_t sizes[2][4] = {{1, 1, 1, 2}, {1, 1, 1, 3}};
    static const double want[2][3] = {{1, 7}, {1, 7, 14.25}};
    for (int i = 0; i < 2; i++) {
        T *t = begin();
        t->from_pytorch = true;
        t->fx_node = "%r : [num_users=1] = call_function[target=torch.ops.aten."
                     "_upsample_bilinear2d_aa.default](args = (%x, [1, 2], False, 1.0, 0.5), "
                     "kwargs = {})";
        ValueId in[4] = {input(t, S(1, 1, 1, 5), V(0, 1, 4, 9, 16)), NONE, NONE,
                         graph_const(t->g, NULL, (Tensor){DT_I64, S(4), sizes[i]})};
        lower(t, OP_Resize, 18, i ? corners : halves, 4, in, 1);
        ok(close_to(&evaluate(t)[t->out[0]], want[i]), "Resize, PyTorch's antialias, %s",
           i ? "align_corners" : "of a scale");
        arena_free(t->arena);
    }
}

int main(void)
{
    test_align_corners();
    test_antialias();
    test_two_scales();
    test_fake_quantise();
    test_recurrent();
    test_grid_sample();
    test_grid_sample_nan();
    return tap_done();
}
