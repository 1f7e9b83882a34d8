// SPDX-License-Identifier: Apache-2.0
// One spiking layer and a linear readout in plain loops over full matrices, forward and back, written
// from the equations: what the cells are compared with.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ebb::test {

using Numbers = std::vector<double>;

struct PlainOptions {
  std::string cell;  // lif, alif, adlif
  bool synaptic = false, hard = false, attached = false, normalised = true;
  double rest = 0, least = -1e30;
  int most = 1 << 30;  // units that are heard at once
  std::function<double(double)> psi;
};

struct PlainShape {
  int steps, batch, inputs, units, outputs;
};

// Parameters and their gradients by name: w_in [H,I], w_rec [H,H], bias [H], w_out [O,H], b_out [O],
// and of units: threshold, tau_mem, tau_syn, tau_adp, beta, a, b.
using Named = std::map<std::string, Numbers>;

struct PlainResult {
  Numbers outputs;  // [T,B,O]
  Named gradients;
  Numbers of_inputs;   // [T,B,I]
  Numbers of_initial;  // [B,F,H] as the cells' fields
  std::int64_t spikes = 0, dropped = 0;
};

class PlainSpiking {
 public:
  PlainSpiking(PlainOptions options, PlainShape shape, Named parameters)
      : o_(std::move(options)), s_(shape), p_(std::move(parameters)) {}

  // The loss is the sum of outputs times `weights` [T,B,O]. `initial`: [B,F,H], no spikes.
  PlainResult run(const Numbers& inputs, const Numbers& initial, const Numbers& weights) {
    result_ = {};
    result_.outputs.resize(weights.size());
    result_.of_inputs.resize(inputs.size());
    result_.of_initial.resize(initial.size());
    for (const auto& [name, values] : p_) result_.gradients[name].assign(values.size(), 0.0);
    for (int b = 0; b < s_.batch; ++b) sample(b, inputs, initial, weights);
    return result_;
  }

 private:
  // One time step of one sample.
  struct Moment {
    Numbers u, v, i, ad, s, level, listed;  // ad: b of alif, w of adlif; s: heard
    Numbers fired;
  };

  double decay(const char* tau, int h) const {
    return std::exp(-1 / p_.at(tau)[static_cast<std::size_t>(h)]);
  }
  double at(const char* name, int h) const { return p_.at(name)[static_cast<std::size_t>(h)]; }
  int fields() const { return o_.cell == "lif" && !o_.synaptic ? 1 : 2; }

  Numbers current(const double* x, const Numbers& s) const {
    Numbers sum(static_cast<std::size_t>(s_.units));
    for (int h = 0; h < s_.units; ++h) {
      double total = at("bias", h);
      for (int j = 0; j < s_.inputs; ++j) total += at("w_in", h * s_.inputs + j) * x[j];
      for (int j = 0; j < s_.units; ++j) {
        total += at("w_rec", h * s_.units + j) * s[static_cast<std::size_t>(j)];
      }
      sum[static_cast<std::size_t>(h)] = total;
    }
    return sum;
  }

  void step(const Numbers& sum, const Moment& before, Moment& now) const {
    for (int h = 0; h < s_.units; ++h) {
      const auto k = static_cast<std::size_t>(h);
      const double alpha = decay("tau_mem", h), kappa = o_.normalised ? 1 - alpha : 1;
      const double threshold = at("threshold", h);
      now.level[k] = threshold;
      if (o_.cell == "lif") {
        now.i[k] = o_.synaptic ? decay("tau_syn", h) * before.i[k] + sum[k] : sum[k];
        now.u[k] = alpha * before.v[k] + kappa * now.i[k];
        now.fired[k] = now.u[k] >= threshold ? 1 : 0;
        now.v[k] = now.u[k];
        if (now.fired[k] > 0) now.v[k] = o_.hard ? o_.rest : now.u[k] - threshold;
        continue;
      }
      now.i[k] = sum[k];
      const double kept = o_.hard && before.s[k] > 0 ? 0 : before.u[k];
      if (o_.cell == "alif") {
        const double rho = decay("tau_adp", h);
        now.ad[k] = rho * before.ad[k] + (1 - rho) * before.s[k];
        now.level[k] = threshold + at("beta", h) * now.ad[k];
        now.u[k] = alpha * kept + kappa * sum[k] - (o_.hard ? 0 : now.level[k] * before.s[k]);
      } else {
        now.ad[k] = decay("tau_adp", h) * before.ad[k] + at("a", h) * before.u[k] +
                    at("b", h) * before.s[k];
        now.u[k] =
            alpha * (kept - (o_.hard ? 0 : threshold * before.s[k])) + kappa * (sum[k] - now.ad[k]);
      }
      now.fired[k] = now.u[k] >= now.level[k] ? 1 : 0;
    }
  }

  void hear(Moment& now) {
    int left = o_.most;
    for (std::size_t k = 0; k < now.fired.size(); ++k) {
      now.s[k] = now.fired[k] > 0 && left > 0 ? 1 : 0;
      left -= now.s[k] > 0 ? 1 : 0;
      result_.spikes += now.s[k] > 0 ? 1 : 0;
      result_.dropped += now.fired[k] > now.s[k] ? 1 : 0;
    }
    int room = o_.most;
    for (const bool firing : {true, false}) {
      for (std::size_t k = 0; k < now.fired.size(); ++k) {
        const bool passes = now.u[k] >= o_.least && o_.psi(now.u[k] - now.level[k]) != 0;
        if ((now.fired[k] > 0) != firing || !passes || room == 0) continue;
        now.listed[k] = 1;
        --room;
      }
    }
  }

  void sample(int b, const Numbers& inputs, const Numbers& initial, const Numbers& weights) {
    const auto units = static_cast<std::size_t>(s_.units);
    const Moment empty{Numbers(units), Numbers(units), Numbers(units), Numbers(units),
                       Numbers(units), Numbers(units), Numbers(units), Numbers(units)};
    std::vector<Moment> m(static_cast<std::size_t>(s_.steps) + 1, empty);
    for (int f = 0; f < fields(); ++f) {
      for (std::size_t k = 0; k < units; ++k) {
        const double value = initial[(static_cast<std::size_t>(b * fields() + f)) * units + k];
        if (o_.cell == "lif") {
          (f == 0 ? m[0].v : m[0].i)[k] = value;
        } else {
          (f == 0 ? m[0].u : m[0].ad)[k] = value;
        }
      }
    }
    for (int t = 0; t < s_.steps; ++t) {
      const std::size_t now = static_cast<std::size_t>(t) + 1;
      const double* const x = inputs.data() + (t * s_.batch + b) * s_.inputs;
      step(current(x, m[now - 1].s), m[now - 1], m[now]);
      hear(m[now]);
      for (int q = 0; q < s_.outputs; ++q) {
        double sum = at("b_out", q);
        for (int h = 0; h < s_.units; ++h) {
          sum += at("w_out", q * s_.units + h) * m[now].s[static_cast<std::size_t>(h)];
        }
        result_.outputs[static_cast<std::size_t>((t * s_.batch + b) * s_.outputs + q)] = sum;
      }
    }
    back(b, inputs, weights, m);
  }

  // d of u, v, i, ad, s after the step on the way back; `ds` gets what the step hands to s before.
  void back(int b, const Numbers& inputs, const Numbers& weights, const std::vector<Moment>& m) {
    const auto units = static_cast<std::size_t>(s_.units);
    Numbers dv(units), di(units), du(units), dad(units), ds(units);
    Named& g = result_.gradients;
    for (int t = s_.steps - 1; t >= 0; --t) {
      const Moment &now = m[static_cast<std::size_t>(t) + 1],
                   &before = m[static_cast<std::size_t>(t)];
      for (int q = 0; q < s_.outputs; ++q) {
        const double dy = weights[static_cast<std::size_t>((t * s_.batch + b) * s_.outputs + q)];
        g["b_out"][static_cast<std::size_t>(q)] += dy;
        for (std::size_t k = 0; k < units; ++k) {
          g["w_out"][static_cast<std::size_t>(q) * units + k] += dy * now.s[k];
          ds[k] += dy * p_["w_out"][static_cast<std::size_t>(q) * units + k];
        }
      }
      Numbers dsum(units), to_s(units);
      for (std::size_t k = 0; k < units; ++k) {
        unit(static_cast<int>(k), before, now,
             {dv[k], di[k], du[k], dad[k], ds[k], dsum[k], to_s[k]});
      }
      const std::size_t first = static_cast<std::size_t>((t * s_.batch + b) * s_.inputs);
      for (std::size_t h = 0; h < units; ++h) {
        g["bias"][h] += dsum[h];
        for (int j = 0; j < s_.inputs; ++j) {
          const std::size_t w =
              h * static_cast<std::size_t>(s_.inputs) + static_cast<std::size_t>(j);
          g["w_in"][w] += dsum[h] * inputs[first + static_cast<std::size_t>(j)];
          result_.of_inputs[first + static_cast<std::size_t>(j)] += p_["w_in"][w] * dsum[h];
        }
        for (std::size_t j = 0; j < units; ++j) {
          g["w_rec"][h * units + j] += dsum[h] * before.s[j];
          to_s[j] += p_["w_rec"][h * units + j] * dsum[h];
        }
      }
      ds = to_s;
    }
    for (std::size_t k = 0; k < units; ++k) {
      const std::size_t own = static_cast<std::size_t>(b * fields()) * units + k;
      result_.of_initial[own] = o_.cell == "lif" ? dv[k] : du[k];
      if (fields() == 2) result_.of_initial[own + units] = o_.cell == "lif" ? di[k] : dad[k];
    }
  }

  // One unit on the way back: d of v, i, u, ad and s after the step; what it hands on. lif, alif
  // and adlif return d of the membrane's decay.
  struct WayBack {
    double &dv, &di, &du, &dad;
    double ds;
    double &dsum, &to_s;
  };

  double lif(int h, const Moment& before, const Moment& now, const WayBack& way) {
    const auto k = static_cast<std::size_t>(h);
    Named& g = result_.gradients;
    const double alpha = decay("tau_mem", h), kappa = o_.normalised ? 1 - alpha : 1;
    const double threshold = at("threshold", h);
    const double psi = now.listed[k] * o_.psi(now.u[k] - now.level[k]);
    const double s = now.fired[k], u = now.u[k];
    double d = 0, dtheta = 0;
    if (!o_.hard && o_.attached) {
      d = way.dv + (way.ds - threshold * way.dv) * psi;
      dtheta = -way.ds * psi - s * way.dv + threshold * way.dv * psi;
    } else if (!o_.hard) {
      d = way.dv + way.ds * psi;
      dtheta = -way.ds * psi - s * way.dv;
    } else if (o_.attached) {
      d = way.dv * (1 - s) + (way.ds + way.dv * (o_.rest - u)) * psi;
      dtheta = -psi * (way.ds + way.dv * (o_.rest - u));
    } else {
      d = way.dv * (1 - s) + way.ds * psi;
      dtheta = -way.ds * psi;
    }
    g["threshold"][k] += dtheta;
    way.dsum = kappa * d + (o_.synaptic ? way.di : 0);
    if (o_.synaptic) {
      const double gamma = decay("tau_syn", h), tau_syn = at("tau_syn", h);
      g["tau_syn"][k] += way.dsum * before.i[k] * gamma / (tau_syn * tau_syn);
      way.di = gamma * way.dsum;
    }
    const double dalpha = d * (o_.normalised ? before.v[k] - now.i[k] : before.v[k]);
    way.dv = alpha * d;
    return dalpha;
  }

  double alif(int h, const Moment& before, const Moment& now, const WayBack& way) {
    const auto k = static_cast<std::size_t>(h);
    Named& g = result_.gradients;
    const double alpha = decay("tau_mem", h), kappa = o_.normalised ? 1 - alpha : 1;
    const double psi = now.listed[k] * o_.psi(now.u[k] - now.level[k]);
    const double rho = decay("tau_adp", h), tau_adp = at("tau_adp", h), beta = at("beta", h);
    const double d = way.du + psi * way.ds;
    const double dlevel = -psi * way.ds - (o_.hard ? 0 : before.s[k] * d);
    const double db = way.dad + beta * dlevel;
    const double kept = o_.hard && before.s[k] > 0 ? 0 : before.u[k];
    g["threshold"][k] += dlevel;
    g["beta"][k] += dlevel * now.ad[k];
    g["tau_adp"][k] += db * (before.ad[k] - before.s[k]) * rho / (tau_adp * tau_adp);
    const double dalpha = d * (kept - (o_.normalised ? now.i[k] : 0));
    way.dsum = kappa * d;
    way.to_s = (1 - rho) * db;
    if (o_.attached) way.to_s -= o_.hard ? alpha * before.u[k] * d : now.level[k] * d;
    way.du = o_.hard && before.s[k] > 0 ? 0 : alpha * d;
    way.dad = rho * db;
    return dalpha;
  }

  double adlif(int h, const Moment& before, const Moment& now, const WayBack& way) {
    const auto k = static_cast<std::size_t>(h);
    Named& g = result_.gradients;
    const double alpha = decay("tau_mem", h), kappa = o_.normalised ? 1 - alpha : 1;
    const double threshold = at("threshold", h);
    const double psi = now.listed[k] * o_.psi(now.u[k] - now.level[k]);
    const double beta = decay("tau_adp", h), tau_adp = at("tau_adp", h);
    const double d = way.du + psi * way.ds;
    const double dw = way.dad - kappa * d;
    const double kept = o_.hard && before.s[k] > 0 ? 0 : before.u[k];
    const double left = kept - (o_.hard ? 0 : threshold * before.s[k]);
    g["threshold"][k] += -psi * way.ds - (o_.hard ? 0 : alpha * before.s[k] * d);
    g["tau_adp"][k] += dw * before.ad[k] * beta / (tau_adp * tau_adp);
    g["a"][k] += dw * before.u[k];
    g["b"][k] += dw * before.s[k];
    const double dalpha = d * (left - (o_.normalised ? now.i[k] - now.ad[k] : 0));
    way.dsum = kappa * d;
    way.to_s = at("b", h) * dw;
    if (o_.attached) way.to_s -= alpha * d * (o_.hard ? before.u[k] : threshold);
    way.du = (o_.hard && before.s[k] > 0 ? 0 : alpha * d) + at("a", h) * dw;
    way.dad = beta * dw;
    return dalpha;
  }

  void unit(int h, const Moment& before, const Moment& now, const WayBack& way) {
    const double dalpha = o_.cell == "lif"    ? lif(h, before, now, way)
                          : o_.cell == "alif" ? alif(h, before, now, way)
                                              : adlif(h, before, now, way);
    const double tau = at("tau_mem", h);
    result_.gradients["tau_mem"][static_cast<std::size_t>(h)] +=
        dalpha * decay("tau_mem", h) / (tau * tau);
  }

  PlainOptions o_;
  PlainShape s_;
  Named p_;
  PlainResult result_;
};

}  // namespace ebb::test
